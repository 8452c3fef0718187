"""What is emitted for DeepSpeed reads back: emission after import keeps every setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from parlay.compiler import pipeline
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
