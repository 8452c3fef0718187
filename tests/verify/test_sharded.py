"""Training state cut over replicas: what ZeRO 2, 3 and HSDP compute and send."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import par, prove, replaced
from .shapes import model

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LAYOUTS = {
    "ZeRO-2, chunks, tied": par(
        "zero = 2, dp = 2, pp = 2, schedule = interleaved(chunks = 2)",
        gpus=4,
        model=model("gpt2"),
    ),
    "ZeRO-3, tp, pp, layers computed again": par(
        "zero = 3, tp = 2, dp = 2, pp = 2", gpus=8, train="recompute = full", model=model("qwen3")
    ),
    "ZeRO-3 over three, a norm behind the embedding": par(
        "zero = 3, dp = 3, overlap = off", gpus=3, global_batch=18, model=model("odd")
    ),
    "ZeRO-3, heads that several ranks hold alike": par(
        "zero = 3, tp = 4, dp = 2", gpus=8, model=model("qwen2.5")
    ),
    "ZeRO-3 in two copies, heads' norms": par(
        "zero = 3, tp = 2, sequence_parallel = off, dp = 4, shard = 2",
        gpus=8,
        model=model("qwen3"),
    ),
    "ZeRO-1 in two copies": par("zero = 1, dp = 4, shard = 2", gpus=4),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_sharded(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], result["failures"]
    assert result["gradients"]["compared"] > 0
    assert result["weights"]["compared"] > 0
    assert any(row["group"] in ("dp", "shard") for row in result["collectives"]["rows"])


FAULTS = {
    "copies are not summed": (
        "    job.gradients.all_reduce(axis=mesh.replicate, bucket=job.plan.buckets.gradients)\n",
        "",
        {"gradients", "norm", "weights", "collectives"},
    ),
    "the norm counts every copy": (
        ", replicas=job.mesh.replicate",
        "",
        {"norm", "weights"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_broken_is_caught(name: str, tmp_path: Path) -> None:
    old, new, wrong = FAULTS[name]
    text = par("zero = 3, dp = 4, shard = 2", gpus=4)
    result = prove(text, tmp_path, edit=replaced("train.py", old, new))
    caught = {kind for kind in ("gradients", "norm", "weights") if not result[kind]["passed"]}
    caught |= set() if result["collectives"]["match"] else {"collectives"}
    assert wrong <= caught, (caught, result["failures"])
