"""Layers of experts: what every layout of them computes and sends."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import par, prove

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SIZES = "layers = 4, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000"


def model(experts: str) -> str:
    return f"model {{ {SIZES}, experts {{ count = 8, top_k = 2, ffn = 96, {experts} }} }}"


LAYOUTS = {
    "one process": par(model=model("shared = 1, dense_layers = 1, aux_loss = 0.01")),
    "ep 2": par("dp = 2, ep = 2", gpus=2, model=model("")),
    "ep 4 of dp 4, ZeRO-1": par(
        "dp = 4, ep = 4, zero = 1", gpus=4, model=model("router = sigmoid")
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    assert result["gradients"]["compared"] > 0
