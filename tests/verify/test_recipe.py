"""Recipes beside AdamW in full: what they compute on ranks is what the plain model does."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from parlay.runtime.local import run_file, run_ranks
from torch import nn

from .proving import emitted, par, prove, replaced

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

NORMS = par("tp = 2", gpus=2, train="recompute = selective(norm)")
SGD = par(
    "zero = 1",
    gpus=2,
    train="optimizer = sgd(lr = 1e-2, momentum = 0.9, weight_decay = 0.1)",
    data="data { packing = off }",
)
LEAN = par(
    "zero = 3",
    gpus=2,
    train="recompute = selective(norm), optimizer = adamw(lr = 1e-3, states = bf16, kahan = on)",
)
HALF = par("pp = 2, offload = cpu(optimizer)", gpus=2, train="precision = fp16")


def failed(result: dict[str, Any]) -> set[str]:
    parts = ("loss", "gradients", "norm", "weights")
    found = {part for part in parts if not result[part]["passed"]}
    return found | (set() if result["collectives"]["match"] else {"collectives"})


RECIPES = {
    "sgd, ZeRO-1, a document a sequence": SGD,
    "bf16 moments, compensated, norms again, ZeRO-3": LEAN,
    "norms again, tp": NORMS,
    "fp16, scaled, optimizer on the host": HALF,
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name: str, tmp_path: Path) -> None:
    result = prove(RECIPES[name], tmp_path)
    assert result["passed"], result["failures"]
    assert result["weights"]["compared"] > 0


def test_layers_that_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Graphs as for GPUs, forwards and backwards traced apart; no kernels, whose compiler takes
    # minutes. What does not become one graph is an error.
    graphs = functools.partialmethod(nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(nn.Module, "compile", graphs)
    text = par(train="compile = on, recompute = selective(mlp)")
    result = prove(text, tmp_path)
    assert result["passed"], result["failures"]


def test_momentum_that_is_left_out_is_found(tmp_path: Path) -> None:
    edit = replaced("train.py", "momentum=plan.optimizer.momentum", "momentum=0.5")
    assert failed(prove(SGD, tmp_path, edit=edit)) == {"loss", "gradients", "norm", "weights"}


def test_gradients_that_stay_scaled_are_found(tmp_path: Path) -> None:
    edit = replaced("train.py", "scale(1 / job.scale.value)", "scale(2 / job.scale.value)")
    assert failed(prove(HALF, tmp_path, edit=edit)) == {"gradients", "norm", "weights", "loss"}


def test_fp16_leaves_out_steps_that_overflow_and_goes_on_from_a_save(tmp_path: Path) -> None:
    saves = 'checkpoint { path = "saves", every = 6 }'
    text = par("pp = 2", gpus=2, global_batch=4, train="precision = fp16", data=saves)
    for name, body in emitted(text, tmp_path)[1].items():
        (tmp_path / name).write_text(body)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan |= {"loss_scale": {"initial": 2.0**20, "window": 2, "least": 1.0}, "steps": 8}
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    def run(_: int) -> None:
        os.environ["PARLAY_OUT"] = str(tmp_path)
        os.environ["PARLAY_RESUME"] = "1"
        run_file(tmp_path / "train.py")

    def lines() -> list[dict[str, Any]]:
        text = (tmp_path / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    run_ranks(run, 2, timeout=200)
    first = lines()
    scale, good, skipped = 2.0**20, 0, 0
    for line in first:
        if line["grad_norm"] is None:
            scale, good, skipped = scale / 2, 0, skipped + 1
        elif (good := good + 1) == 2:
            scale, good = 2 * scale, 0
        assert (line["loss_scale"], line["skipped"]) == (scale, skipped)
    assert 2 <= skipped <= 5 and first[0]["grad_norm"] is None and first[-1]["loss"] < 6.9
    shutil.rmtree(tmp_path / "saves" / "step-00000008")
    run_ranks(run, 2, timeout=200)
    kept = ("loss", "grad_norm", "loss_scale", "skipped")
    assert [[line[k] for k in kept] for line in lines()] == [
        [line[k] for k in kept] for line in first
    ]
