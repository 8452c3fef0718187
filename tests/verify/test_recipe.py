"""Recipes beside AdamW in full: what they compute on ranks is what the plain model does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from .proving import par, prove, replaced

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SGD = par(
    "zero = 1", gpus=2, train="optimizer = sgd(lr = 1e-2, momentum = 0.9, weight_decay = 0.1)"
)
LEAN = par("zero = 3", gpus=2, train="optimizer = adamw(lr = 1e-3, states = bf16, kahan = on)")


def failed(result: dict[str, Any]) -> set[str]:
    parts = ("loss", "gradients", "norm", "weights")
    found = {part for part in parts if not result[part]["passed"]}
    return found | (set() if result["collectives"]["match"] else {"collectives"})


@pytest.mark.parametrize("text", [SGD, LEAN], ids=["sgd, ZeRO-1", "bf16 moments, ZeRO-3"])
def test_recipe(text: str, tmp_path: Path) -> None:
    result = prove(text, tmp_path)
    assert result["passed"], result["failures"]
    assert result["weights"]["compared"] > 0


def test_momentum_that_is_left_out_is_found(tmp_path: Path) -> None:
    edit = replaced("train.py", "momentum=plan.optimizer.momentum", "momentum=0.5")
    assert failed(prove(SGD, tmp_path, edit=edit)) == {"loss", "gradients", "norm", "weights"}
