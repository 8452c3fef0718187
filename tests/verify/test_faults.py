"""Planted faults: each edit of the emitted code fails the comparison that is meant for it.

The unedited control is `tp, pp, dp in order` of test_layouts, which passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from .proving import Edit, par, plan_changed, prove, replaced

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LAYOUT = par("tp = 2, pp = 2, dp = 2, order = [tp, pp, dp]", gpus=8)


def more_calls(plan: dict[str, Any]) -> None:
    row = next(row for row in plan["collectives"] if row["group"] == "dp")
    row["calls"] += 1


def more_bytes(plan: dict[str, Any]) -> None:
    row = next(row for row in plan["collectives"] if row["group"] == "tp")
    row["bytes"] += 8


def row_lost(plan: dict[str, Any]) -> None:
    plan["collectives"] = [r for r in plan["collectives"] if r["collective"] != "send"]


FAULTS: dict[str, tuple[Edit, set[str]]] = {
    "a wrong group": (
        replaced("train.py", "all_reduce(axis=mesh.dp", "all_reduce(axis=mesh.tp"),
        {"gradients", "weights", "collectives"},
    ),
    "a wrong order of axes": (
        replaced("mesh.py", 'ORDER = ("tp", "pp", "dp")', 'ORDER = ("tp", "dp", "pp")'),
        {"collectives"},
    ),
    "a missing all-reduce": (
        replaced(
            "train.py",
            "    job.gradients.all_reduce(axis=mesh.dp, bucket=plan.buckets.gradients)\n",
            "",
        ),
        {"gradients", "weights", "collectives"},
    ),
    "a wrong loss scale": (
        replaced(
            "train.py",
            "valid = valid_labels(batch, device=mesh.device, axis=mesh.dp)",
            "valid = 2 * valid_labels(batch, device=mesh.device, axis=mesh.dp)",
        ),
        {"loss", "gradients"},
    ),
    "an unsynchronised norm weight": (
        replaced("train.py", "    job.gradients.sum_whole(axis=mesh.tp)\n", ""),
        {"gradients", "weights", "collectives"},
    ),
    "a raw collective added": (
        replaced(
            "train.py",
            "    job.optimizer.step(",
            "    dist.all_reduce(norm.clone(), group=job.mesh.dp.group)\n    job.optimizer.step(",
        ),
        {"collectives"},
    ),
    "a norm over a part of the weights": (
        replaced("train.py", "norm(over=job.mesh.tp_pp,", "norm(over=job.mesh.tp,"),
        {"weights", "collectives"},
    ),
    "a predicted call too many": (plan_changed(more_calls), {"collectives"}),
    "predicted bytes too many": (plan_changed(more_bytes), {"collectives"}),
    "a predicted row lost": (plan_changed(row_lost), {"collectives"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    edit, expected = FAULTS[name]
    result = prove(LAYOUT, tmp_path, edit=edit)
    assert not result["passed"]
    failed = {part for part in ("loss", "gradients", "weights") if not result[part]["passed"]} | (
        set() if result["collectives"]["match"] else {"collectives"}
    )
    assert expected <= failed, (failed, result["failures"])
    assert result["failures"]
    only_sent = {"a raw collective added", "a predicted call too many", "predicted bytes too many"}
    if name in only_sent:
        assert failed == {"collectives"}
