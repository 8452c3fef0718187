"""Multi-head latent attention computes what one process does; planted faults are found."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("torch")

from .proving import Edit, par, prove, replaced

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

WIDTHS = "kv_rank = 16, nope_dim = 8, rope_dim = 4, v_dim = 8"
SIZES = "layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1001"


def model(mla: str = "q_rank = 24, ", more: str = "") -> str:
    return f"model {{ {SIZES}, mla {{ {mla}{WIDTHS} }} {more} }}"


YARN = "rope_scaling = yarn(factor = 40, original = 4096, mscale_all_dim = 0.707)"

LAYOUTS = {
    "latents of pieces, stages": (model(more=YARN), "tp = 2, pp = 2", 4, ""),
    "queries of the stream, whole sequences, again": (
        model("", "bias = [qkv, out], window(size = 16, every = 2), sinks = on"),
        "tp = 2, dp = 2, sequence_parallel = off",
        4,
        "recompute = full",
    ),
    "units": (model(), "tp = 2, dp = 2, zero = 3", 4, "recompute = full"),
    "shards and stages, written out": (
        model(more="norm = layernorm, rope(theta = 1000, scaling = 2)"),
        "dp = 2, pp = 2, zero = 1",
        4,
        "attention = math, recompute = selective",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_latent(name: str, tmp_path: Path) -> None:
    block, parallel, gpus, train = LAYOUTS[name]
    result = prove(par(parallel, gpus=gpus, model=block, train=train), tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    for part in ("loss", "gradients", "norm", "initial", "weights"):
        assert result[part]["compared"] > 0 and result[part]["max_relative_error"] <= 1e-10


ONE = par(model=model(more=YARN))
TWO = par("tp = 2, sequence_parallel = off", gpus=2, model=model())

FAULTS: dict[str, tuple[str, Edit, set[str]]] = {
    "a key rotated beyond its part": (
        ONE,
        replaced(
            "model.py",
            "self.join(k, turned)",
            "self.join(rotate(k[..., :4], cos, sin), k[..., 4:], turned)",
        ),
        {"loss", "gradients", "weights"},
    ),
    "a latent without its norm": (
        ONE,
        replaced("model.py", "self.kv_norm(kv)", "kv"),
        {"loss", "gradients", "weights"},
    ),
    "scores that do not grow with the factor": (
        ONE,
        replaced("model.py", "        q = self.score_factor * q\n", ""),
        {"loss", "gradients", "weights"},
    ),
    "a scale of the part without position": (
        ONE,
        replaced("model.py", "is_causal=True", "is_causal=True, scale=mla.nope_dim**-0.5"),
        {"loss", "gradients", "weights"},
    ),
    "latents whose gradients are those of own heads": (
        TWO,
        replaced(
            "model.py",
            "turned, q, kv = latent.expand(",
            "turned, q, kv = (lambda made, ups, turned, axis: "
            "(turned, *map(F.linear, made, ups)))(",
        ),
        {"gradients", "norm", "weights", "collectives"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    layout, edit, expected = FAULTS[name]
    result = prove(layout, tmp_path, edit=edit)
    assert not result["passed"] and not result["detail"], result["detail"]
    parts = ("loss", "gradients", "norm", "initial", "weights")
    failed = {part for part in parts if not result[part]["passed"]}
    failed |= set() if result["collectives"]["match"] else {"collectives"}
    assert expected <= failed, (failed, result["failures"])


def test_down_projections_are_not_drawn_as_what_writes_to_the_stream(tmp_path: Path) -> None:
    from parlay.runtime import init

    with mock.patch.object(init, "_RESIDUAL", ("o.weight", "down.weight")):
        result = prove(ONE, tmp_path)
    assert not result["initial"]["passed"]
    assert any("kv_down" in words for words in result["failures"])
