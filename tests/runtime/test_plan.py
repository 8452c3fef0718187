import copy
import json
import pickle

import pytest
from parlay.runtime.plan import Plan

FIELDS = {
    "version": 1,
    "mesh": {"tp": 2, "pp": 2},
    "stages": [{"stage": 0, "layers": [0, 1]}, {"stage": 1, "layers": [2, 3]}],
    "batch": {"seq": 128},
    "clip": None,
}


def test_fields_are_attributes_and_keys(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(FIELDS))
    plan = Plan.load(tmp_path / "plan.json")
    assert plan.batch.seq == 128
    assert plan.stages[1].layers == (2, 3)
    assert plan.clip is None
    assert plan.mesh["tp"] == 2
    assert dict(plan.mesh) == {"tp": 2, "pp": 2}


def test_it_goes_back_to_what_it_was_read_from():
    plan = Plan.of(FIELDS)
    assert plan.to_dict() == FIELDS
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert copy.deepcopy(plan).batch == plan.batch


def test_it_is_frozen_and_names_what_is_missing():
    plan = Plan.of(FIELDS)
    with pytest.raises(AttributeError, match=r"plan\.batch\.seq is frozen"):
        plan.batch.seq = 1
    with pytest.raises(AttributeError, match=r"plan\.batch has no field sequence; it has seq"):
        plan.batch.sequence  # noqa: B018
    with pytest.raises(AttributeError, match=r"plan\.stages\[1\] has no field head"):
        plan.stages[1].head  # noqa: B018


def test_another_version_is_refused():
    with pytest.raises(ValueError, match="version 2; this runtime reads 1"):
        Plan.of({**FIELDS, "version": 2})
