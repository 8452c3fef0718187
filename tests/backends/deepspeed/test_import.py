"""What is emitted for DeepSpeed reads back: emission after import keeps every setting."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.deepspeed.options import NEWEST, sections
from parlay.compiler.importers import deepspeed


@pytest.mark.parametrize("seed", range(12))
def test_emit_after_import_keeps_every_setting(
    tmp_path: Path, drawn_deepspeed: Callable[[Random], str], seed: int
) -> None:
    random, path = Random(seed), tmp_path / "job.par"
    while True:
        path.write_text(drawn_deepspeed(random))
        job = pipeline.check(path, ("deepspeed",))
        if not job.errors:
            break
    before = pipeline.emit(job, "deepspeed").files
    folder = tmp_path / "emitted"
    folder.mkdir()
    for name, text in before.items():
        (folder / Path(name).name).write_text(text)
    found = deepspeed.read(folder)
    # The configuration names no model, and no kind of machine.
    model = path.read_text().partition("cluster {")[0]
    back = tmp_path / "back.par"
    back.write_text(model + found.text)
    again = pipeline.check(back, ("deepspeed",))
    assert [said.message for said in again.errors] == []
    after = pipeline.emit(again, "deepspeed").files
    ours, theirs = (json.loads(f["deepspeed/ds_config.json"]) for f in (after, before))
    assert ours == theirs
    plans = [json.loads(files["deepspeed/plan.json"]) for files in (after, before)]
    for plan in plans:
        for name in ("source", "spec", "peak_flops", "stages"):
            plan.pop(name, None)
    assert plans[0].get("recompute") == plans[1].get("recompute")
    for name in ("batch", "steps", "seed", "lr_schedule", "data", "checkpoint", "log"):
        assert plans[0].get(name) == plans[1].get(name), name


BASES = {
    "zero 1": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}},
    "zero 3": {
        "fp16": {"enabled": True},
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_no_key_that_is_read_is_refused(tmp_path: Path, base: str) -> None:
    """Every key of DeepSpeed's, one by one: what becomes an option is one, the rest is told."""
    path, out, asked = tmp_path / "ds_config.json", tmp_path / "job.par", 0
    known = sections(NEWEST)

    def read(config: dict[str, Any]) -> str:
        path.write_text(json.dumps(config))
        return deepspeed.read(path, model="gpt2-xl").text

    plain: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, **BASES[base]}
    usual = read(plain)
    for section, names in known.items():
        for name in names:
            config = copy.deepcopy(plain)
            inside = config
            for part in section.split(".") if section else ():
                inside = inside.setdefault(part, {})
            if name in inside or f"{section}.{name}".strip(".") in known:
                continue
            inside[name], asked = 7, asked + 1
            out.write_text(text := read(config))
            told = pipeline.check(out, ("deepspeed",)).errors
            assert not [said for said in told if said.code in ("B342", "B343", "B507")], name
            assert text != usual, name
    assert asked > 150
