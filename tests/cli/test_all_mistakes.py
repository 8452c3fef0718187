"""Every command that refuses a file tells all of its errors, those of the rules too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

MISTAKES = Path(__file__).parents[2] / "docs" / "mistakes.par"


COMMANDS: list[tuple[str | Path, ...]] = [
    ("ledger", MISTAKES),
    ("layout", MISTAKES),
    ("compile", "--target", "torch", MISTAKES),
    ("verify", MISTAKES),
    ("run", MISTAKES),
    ("diff", MISTAKES, MISTAKES),
    ("compare", MISTAKES, "metrics.jsonl"),
    ("timeline", MISTAKES, "-o", "trace.json"),
    ("report", MISTAKES, "-o", "page.html"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_both_errors_are_told(command: tuple[str | Path, ...], parlay: Any) -> None:
    ended = parlay(*command)
    assert ended.status == 1
    assert "error[L201]" in ended.err
    assert "error[T002]" in ended.err
