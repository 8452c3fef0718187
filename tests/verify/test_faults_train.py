"""Planted faults of training: each is caught by the comparison that is meant for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from parlay.runtime.local import run_ranks
from parlay.runtime.plan import Plan

from .proving import Edit, emitted, par, prove, replaced

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

PLAIN = par("tp = 2, dp = 2", gpus=4)
SHARDED = par("tp = 2, dp = 2, zero = 1", gpus=4)


def both(*edits: Edit) -> Edit:
    def edit(files: dict[str, str]) -> None:
        for one in edits:
            one(files)

    return edit


FAULTS: dict[str, tuple[str, Edit, set[str], set[str]]] = {
    "the labels of another microbatch": (
        PLAIN,
        replaced(
            "train.py",
            "    for tokens, labels in batch:",
            "    for tokens, labels in [(t, batch[i - 1][1]) for i, (t, _) in enumerate(batch)]:",
        ),
        {"loss", "gradients", "norm", "weights"},
        {"collectives"},
    ),
    "clipped by the norm of this rank alone": (
        PLAIN,
        replaced("train.py", "clip(norm, limit", "clip(job.gradients.norm(), limit"),
        {"weights"},
        {"collectives"},
    ),
    "averaged by ranks, whose labels differ in number": (
        PLAIN,
        replaced(
            "train.py",
            "valid_labels(batch, device=device, axis=mesh.dp)",
            "valid_labels(batch, device=device) * mesh.dp.size",
        ),
        {"loss", "gradients", "weights", "collectives"},
        set(),
    ),
    "shards are not gathered": (
        SHARDED,
        replaced("train.py", "    job.weights.all_gather(axis=job.mesh.dp)\n", ""),
        {"weights", "collectives"},
        set(),
    ),
    "the optimizer has the shard of another rank": (
        SHARDED,
        both(
            replaced(
                "train.py",
                "    optimizer = AdamW(\n",
                "    right, half = gradients.owned, weights.buffer.numel() // 2\n"
                "    gradients.owned = slice(half - right.start, 2 * half - right.start)\n"
                "    optimizer = AdamW(\n",
            ),
            replaced(
                "train.py", "    return Job(\n", "    gradients.owned = right\n    return Job(\n"
            ),
        ),
        {"weights"},
        {"collectives"},
    ),
    "the norm is that of this rank's shard": (
        SHARDED,
        replaced("train.py", "norm(over=job.mesh.world, ", "norm(over=job.mesh.tp, "),
        {"norm", "weights", "collectives"},
        set(),
    ),
    "layers computed again with other angles": (
        par("tp = 2, dp = 2", gpus=4, train="recompute = full"),
        replaced(
            "model.py",
            "x = recompute(layer, x, cos, sin)",
            "x = recompute(layer, x, cos, sin)\n        cos.mul_(0.5)",
        ),
        {"gradients"},
        set(),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    layout, edit, wrong, right = FAULTS[name]
    result = prove(layout, tmp_path, edit=edit)
    assert not result["passed"] and result["failures"]
    failed = {
        part for part in ("loss", "gradients", "norm", "weights") if not result[part]["passed"]
    } | (set() if result["collectives"]["match"] else {"collectives"})
    assert wrong <= failed, (failed, result["failures"])
    assert not right & failed, (failed, result["failures"])


# ── bf16 ──────────────────────────────────────────────────────────────────────


def many_small_steps(folder: Path) -> Callable[[int], float]:
    """A weight of 1 after 1,000 updates of 1e-5 each, by the emitted job."""

    def run(rank: int) -> float:
        sys.path.insert(0, str(folder))
        import train  # type: ignore[import-not-found]

        job: Any = train.build(Plan.load(folder / "plan.json"))
        for _ in range(1000):
            job.gradients.buffer.fill_(1.0)
            job.optimizer.step(lr=1e-5)
            job.gradients.clear()
        weight: Any = job.optimizer.weights.parameters["norm.weight"]
        return float(weight.detach().float().mean())

    return run


MASTERLESS = both(
    replaced("train.py", "master=precision.dtype(plan.dtypes.master)", "master=compute"),
    replaced("train.py", "states=precision.dtype(plan.dtypes.optimizer)", "states=compute"),
)


@pytest.mark.parametrize("masters", [True, False])
def test_updates_are_lost_without_masters(masters: bool, tmp_path: Path) -> None:
    _, files = emitted(par(train="precision = bf16"), tmp_path)
    code = {f"code/{name}": body for name, body in files.items()}
    if not masters:
        MASTERLESS(code)
    for name, body in code.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(body)
    (found,) = run_ranks(many_small_steps(tmp_path / "code"), 1, timeout=120)
    assert found == pytest.approx(0.99 if masters else 1.0, abs=0.003)
