"""Schedules, orders, uneven stages and ZeRO: each computes what one process does."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import par, prove

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

DEEP = "model { layers = 8, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000 }"
SHARED = """model {
  layers = 8, hidden = 64, heads = 8, kv_heads = 1, ffn = 160, vocab = 999
  tied_embeddings = on, bias = [qkv, out, mlp], norm = layernorm, norm_bias = on
}"""
NORMS = DEEP.replace("vocab", "norm_placement = both, qk_norm = full, vocab")
SEVEN = DEEP.replace("layers = 8", "layers = 7")

CONSTANT = "lr_schedule = constant(warmup = 2)"
LINEAR = "lr_schedule = linear(warmup = 2, min_lr = 1e-4)"
WSD = "lr_schedule = wsd(warmup = 2, decay = 4, min_lr = 1e-4)"

LAYOUTS = {
    "gpipe": par("pp = 2, schedule = gpipe", gpus=2),
    "gpipe, fewer microbatches than stages": par(
        "pp = 4, schedule = gpipe", gpus=4, global_batch=4
    ),
    "interleaved": par("pp = 2, schedule = interleaved(chunks = 2)", gpus=2),
    "interleaved by three, one layer each": par(
        "pp = 2, schedule = interleaved(chunks = 3), stages = [1, 1, 2, 1, 1, 1]",
        gpus=2,
        model=SEVEN,
    ),
    "interleaved, tp, dp with ZeRO-1": par(
        "tp = 2, pp = 2, dp = 2, schedule = interleaved(chunks = 2), zero = 1", gpus=8, model=DEEP
    ),
    "uneven stages": par("pp = 2, stages = [3, 1]", gpus=2),
    "balanced stages": par("pp = 2, dp = 2, stages = auto", gpus=4, model=SEVEN),
    "gpipe, pp before dp before tp": par(
        "tp = 2, sequence_parallel = off, pp = 2, dp = 2, schedule = gpipe, order = [pp, dp, tp]",
        gpus=8,
    ),
    "ZeRO-1": par("dp = 2, zero = 1", gpus=2),
    "ZeRO-1 over three": par("dp = 3, zero = 1", gpus=3, global_batch=12),
    "ZeRO-1, tp": par("tp = 2, dp = 2, zero = 1", gpus=4, train="precision = bf16"),
    "ZeRO-1, pp": par("pp = 2, dp = 2, zero = 1, schedule = gpipe", gpus=4),
    "ZeRO-1, tp, pp, dp": par("tp = 2, pp = 2, dp = 2, zero = 1, order = [tp, pp, dp]", gpus=8),
    "ZeRO-1, no clipping, dp first": par(
        "tp = 2, sequence_parallel = off, pp = 2, dp = 2, zero = 1, order = [dp, tp, pp]",
        gpus=8,
        train="clip = 0",
    ),
    "constant rate, everything again": par("tp = 2", gpus=2, train=f"recompute = full, {CONSTANT}"),
    "linear rate, everything again without sequence parallelism": par(
        "tp = 2, sequence_parallel = off, pp = 2", gpus=4, train=f"recompute = full, {LINEAR}"
    ),
    "stable rate, the first layer of a stage again": par(
        "tp = 2, pp = 2, dp = 2, zero = 1",
        gpus=8,
        model=DEEP,
        train=f"recompute = full(first = 3), {WSD}",
    ),
    "every second layer again": par(
        "tp = 2, pp = 2, schedule = interleaved(chunks = 2), stages = [3, 1, 2, 1]",
        gpus=4,
        model=SEVEN,
        train="recompute = full(every = 2)",
    ),
    "the MLP again": par(
        "tp = 2, dp = 2", gpus=4, train="recompute = selective(mlp), precision = bf16"
    ),
    "the MLP again without sequence parallelism": par(
        "tp = 2, sequence_parallel = off", gpus=2, train="recompute = selective(mlp)"
    ),
    "attention by math and the activation, again": par(
        "tp = 2",
        gpus=2,
        train="attention = math, recompute = selective(core_attention, activation)",
    ),
    "ZeRO-1 and chunks, weights that several ranks hold alike": par(
        "tp = 2, pp = 2, dp = 2, zero = 1, schedule = interleaved(chunks = 2), "
        "order = [tp, pp, dp]",
        gpus=8,
        model=SHARED,
    ),
    "everything again, norms behind the sums over tp": par(
        "tp = 2, dp = 2, zero = 1", gpus=4, model=NORMS, train="recompute = full"
    ),
    "the MLP again, norms behind the sums over tp": par(
        "tp = 2, sequence_parallel = off", gpus=2, model=NORMS, train="recompute = selective(mlp)"
    ),
    "gradients in bf16": par(
        "tp = 2, dp = 2", gpus=4, train="precision = bf16, gradients = bf16, attention = math"
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], result["failures"]
    assert result["gradients"]["max_relative_error"] <= 1e-10
    assert result["weights"]["max_relative_error"] <= 1e-10
    assert result["collectives"]["match"]
