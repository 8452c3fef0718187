"""Samples that are held out: their loss in every layout is that of the plain model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from parlay.compiler import pipeline  # noqa: E402
from parlay.reference.model import Config, logits, loss_sum  # noqa: E402
from parlay.reference.train import initial  # noqa: E402
from parlay.runtime.local import run_file, run_ranks  # noqa: E402
from parlay.runtime.tokens import write_tokens  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

# Weights that stay as they were drawn, whatever is trained on.
TEXT = """
model {{ layers = 4, hidden = 32, heads = 4, kv_heads = 2, ffn = 64, vocab = 101
  init_std = 0.3 }}
cluster {{ node from "laptop" {{ gpus = {gpus} }} }}
parallel {{ {parallel} }}
train {{
  seq = 16, micro_batch = 1, global_batch = 4, steps = 3, precision = fp32
  optimizer = adamw(lr = 1e-30), lr_schedule = constant
}}
data {{ path = "{data}", format = tokens, validation = 25% }}
checkpoint {{ path = "saves", every = 2 }}
log {{ every = 3 }}
"""
LAYOUTS = {
    "tp and chunks": (4, "tp = 2, pp = 2, schedule = interleaved(chunks = 2)"),
    "ZeRO-3": (2, "zero = 3"),
    "a ring and stages": (4, "cp = 2, pp = 2"),
    "two copies of the model": (2, "pp = 2, schedule = dualpipe"),
    "both ends of the model on one rank": (2, "pp = 2, schedule = zbv"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_loss_of_what_is_held_out(name: str, tmp_path: Path) -> None:
    data = tmp_path / "tokens.bin"
    write_tokens(data, vocab=101, seq=16, windows=60)
    gpus, parallel = LAYOUTS[name]
    (tmp_path / "job.par").write_text(TEXT.format(gpus=gpus, parallel=parallel, data=data))
    job = pipeline.check(tmp_path / "job.par", ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    for file, body in pipeline.emit(job, "torch").files_of("torch").items():
        (tmp_path / file).write_text(body)

    def rank(_: int) -> None:
        os.environ["PARLAY_OUT"] = str(tmp_path / "out")
        run_file(tmp_path / "train.py")

    run_ranks(rank, gpus, timeout=200)
    text = (tmp_path / "out" / "metrics.jsonl").read_text()
    found = {line["step"]: line for line in map(json.loads, text.splitlines())}
    # With the save after the second step, and at the end; every third step is logged anyway.
    assert {step: "validation_loss" in line for step, line in found.items()} == {1: True, 2: True}
    expected = plain_loss(tmp_path, data)
    for line in found.values():
        assert line["validation_loss"] == pytest.approx(expected, rel=1e-6)
        assert abs(line["loss"] - expected) > 1e-4  # which is of other samples


def plain_loss(folder: Path, data: Path) -> float:
    """Of the last quarter of 59 whole windows, 14, the first three batches of four."""
    plan = json.loads((folder / "plan.json").read_text())
    config = Config.of(plan["model"])
    weights = initial(config, std=plan["init"]["std"], seed=plan["seed"])
    stream = torch.from_numpy(np.fromfile(data, dtype="<u2").astype(np.int64))
    rows = torch.stack([stream[16 * window : 16 * window + 17] for window in range(45, 57)])
    labels = rows[:, 1:].clone()
    labels[labels == json.loads(data.with_suffix(".json").read_text())["pad"]] = -100
    total = loss_sum(logits(config, weights, rows[:, :-1]), labels)
    return float(total / (labels != -100).sum())
