"""The process groups of Megatron-Core 0.16.1, rank for rank."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.layout import lay_out
from parlay.compiler.layout.orders import dense_grid, expert_grid, pipelines_agree
from parlay.compiler.spec.blocks import Spec

CASES = json.loads((Path(__file__).parent / "megatron_groups.json").read_text())["cases"]
ACCEPTED = [case for case in CASES if "groups" in case]
REJECTED = [case for case in CASES if "rejected" in case]
NAMES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp_cp",
    "MODEL_PARALLEL_GROUP": "tp_pp",
    "EMBEDDING_GROUP": "embedding",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
}


def _name(case: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in case["case"].items())


def _degrees(case: dict[str, Any]) -> dict[str, Any]:
    degrees = dict(case["case"])
    degrees["gpus"] = degrees.pop("world")
    degrees["order"] = tuple(degrees.get("order", "tp-cp-ep-dp-pp").split("-"))
    return degrees


def _sets(groups: Iterable[Iterable[int]]) -> set[frozenset[int]]:
    return {frozenset(group) for group in groups}


def test_numbers_of_cases() -> None:
    assert (len(ACCEPTED), len(REJECTED)) == (89, 23)


@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
def test_accepted(case: dict[str, Any], job: Callable[..., Spec]) -> None:
    layout = lay_out(job(**_degrees(case)))
    assert set(case["groups"]) == set(NAMES)
    for megatron, kind in NAMES.items():
        assert _sets(layout.groups(kind)) == _sets(case["groups"][megatron]), kind


@pytest.mark.parametrize("case", REJECTED, ids=_name)
def test_rejected_only_where_the_pipeline_groups_differ(
    case: dict[str, Any], job: Callable[..., Spec]
) -> None:
    """Megatron refuses any order without pp last unless edp = dp; here the sets decide."""
    spec = job(**_degrees(case))
    dense = dense_grid(spec.parallel)
    expert = expert_grid(spec.parallel, world=dense.world)
    assert expert is not None
    equal = _sets(dense.groups(["pp"])) == _sets(expert.groups(["pp"]))
    assert pipelines_agree(dense, expert) == equal
    if equal:
        lay_out(spec)
