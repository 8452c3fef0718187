"""Every command that refuses a file tells all of its errors, those of the rules too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

MISTAKES = Path(__file__).parents[2] / "docs" / "mistakes.par"


@pytest.mark.parametrize(
    "command", [("ledger",), ("layout",), ("compile", "--target", "torch"), ("verify",), ("run",)]
)
def test_both_errors_are_told(command: tuple[str, ...], parlay: Any) -> None:
    ended = parlay(*command, MISTAKES)
    assert ended.status == 1
    assert "error[L201]" in ended.err
    assert "error[T002]" in ended.err
