"""What emitted code writes for TensorBoard, read by TensorBoard, which torchtitan brings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[2]
PLAN = {
    "version": 1,
    "mesh": {"dp": 2},
    "batch": {"seq": 100, "global_batch": 8},
    "steps": 6,
    "log": {"every": 1, "tensorboard": True},
    "flops_per_token": 6e3,
    "peak_flops": None,
}


def test_a_run_that_went_on(tmp_path: Path, oracle: Callable[..., Any]) -> None:
    """Steps that were done twice are shown once, as they were done last."""
    question = {"folder": str(tmp_path), "plan": PLAN, "runs": [[0, 5], [3, 6]]}
    python_path = str(ROOT / ".links")
    [found] = oracle("torchtitan", "tensorboard_log.py", [question], PYTHONPATH=python_path)
    assert sorted(found) == ["loss", "lr", "tokens_per_second"]
    assert found["loss"] == [[0, 0.0], [1, 1.0], [2, 2.0], [3, 33.0], [4, 34.0], [5, 35.0]]
    assert [value for _, value in found["lr"]] == [0.5] * 6
