"""Adapters on frozen weights compute what one process does with merged ones; planted faults are
found."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from .proving import Edit, par, prove, replaced  # noqa: E402
from .shapes import SIZES, model  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LORA = "lora = lora(rank = 8, alpha = 16)"
OFF = "sequence_parallel = off"

EXPERTS = "experts { count = 8, ffn = 96, top_k = 2, shared = 1, dense_layers = 1"
FURTHER = {
    "deepseek": f"model {{ {SIZES}, mla {{ q_rank = 24, kv_rank = 16, nope_dim = 8, rope_dim = 4, "
    f"v_dim = 8 }}, {EXPERTS}, router = sigmoid, router_bias = on }} }}",
    "experts": f"model {{ {SIZES}, kv_heads = 4, bias = [qkv, out, mlp, router], {EXPERTS}, "
    "aux_loss = 0.1, shared_gate = on } }",
}
"""Models that have no shape of their own."""

LAYOUTS = {
    "pieces, tied over stages, again": ("gpt2", "tp = 2, pp = 2", 4, "recompute = full"),
    "heads on two ranks each, whole sequences": (
        "qwen3",
        f"tp = 4, {OFF}",
        4,
        "recompute = selective(activation)",
    ),
    "shards of adapters, both halves at once": ("falcon", "tp = 2, dp = 2, zero = 1", 4, ""),
    "frozen weights cut, heads on two ranks each": (
        "qwen3",
        f"tp = 4, dp = 2, zero = 3, {OFF}",
        8,
        "",
    ),
    "frozen weights cut, tied on one stage, again": (
        "mpt",
        "dp = 4, zero = 3, overlap = off",
        4,
        "recompute = full",
    ),
    "frozen weights cut in two copies, stages": (
        "gpt2",
        "pp = 2, dp = 4, zero = 3, shard = 2",
        8,
        "",
    ),
    "shards of adapters, ZeRO-2": ("gemma", "dp = 2, zero = 2", 2, ""),
    "latents and experts, dealt out and cut": (
        "deepseek",
        "dp = 4, ep = 2, zero = 3",
        4,
        "recompute = full",
    ),
    "experts whole, shared ones over tp, stages": (
        "experts",
        "tp = 2, pp = 2, dp = 2, ep = 2, etp = 2",
        8,
        "",
    ),
    "norms of all heads, a ring": ("olmo2", "tp = 2, cp = 2", 4, "recompute = selective(mlp)"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_lora(name: str, tmp_path: Path) -> None:
    shape, parallel, gpus, train = LAYOUTS[name]
    block = FURTHER.get(shape) or model(shape)
    text = par(parallel, gpus=gpus, model=block, train=f"{LORA}, {train}")
    result = prove(text, tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    for part in ("loss", "gradients", "norm", "initial", "weights"):
        assert result[part]["compared"] > 0 and result[part]["max_relative_error"] <= 1e-10


TWO = par("tp = 2", gpus=2, model=model("qwen2.5"), train=LORA)

CUT = par("dp = 2, zero = 3", gpus=2, model=model("qwen2.5"), train=LORA)

FAULTS: dict[str, tuple[Edit, set[str]]] = {
    "a share that is not summed": (
        replaced("train.py", "    job.gradients.sum_whole(axis=mesh.tp)\n", ""),
        {"gradients", "norm", "weights", "collectives"},
    ),
    "weights that are not frozen": (
        replaced("train.py", "        freeze(model)\n", ""),
        {"gradients", "norm", "weights", "collectives"},
    ),
}


def failed(result: dict[str, Any]) -> set[str]:
    parts = ("loss", "gradients", "norm", "initial", "weights")
    found = {part for part in parts if not result[part]["passed"]}
    return found | (set() if result["collectives"]["match"] else {"collectives"})


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    edit, expected = FAULTS[name]
    result = prove(TWO, tmp_path, edit=edit)
    assert not result["passed"] and not result["detail"], result["detail"]
    assert expected <= failed(result), result["failures"]


def test_frozen_weights_of_other_ranks(tmp_path: Path) -> None:
    """A shard that is taken for its neighbour's."""
    from parlay.runtime.units import Unit

    gather = Unit.gather

    def swapped(self: Unit, own: torch.Tensor) -> None:
        gather(self, own)
        if self.work is not None:
            self.work.wait()
            self.buffer.copy_(self.buffer.view(2, -1).flip(0).flatten())

    with mock.patch.object(Unit, "gather", swapped):
        result = prove(CUT, tmp_path)
    assert {"loss", "gradients"} <= failed(result)


def test_the_scale_of_an_adapter(tmp_path: Path) -> None:
    """The first loss knows nothing of it: B is zero."""
    from parlay.runtime.adapters import Adapted

    def unscaled(self: Adapted, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.lora_a)

    with mock.patch.object(Adapted, "low", unscaled):
        result = prove(TWO, tmp_path)
    assert {"gradients", "norm", "weights"} <= failed(result) and not result["detail"]
    assert result["collectives"]["match"]
