"""docs/commands.md: every shape that it shows is there in what the command prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRONG = ROOT / "docs" / "mistakes.par"
LARGE = ROOT / "examples" / "llama-70b-64gpu" / "llama-70b.par"
OPEN = """
model from "llama3-8b"
cluster { node from "dgx-h100" }
parallel { tp = auto, dp = auto, zero = 1 }
train { seq = 4Ki, micro_batch = 1, global_batch = 64, recompute = full }
"""


@pytest.mark.parametrize(
    ("shape", "command", "full"),
    [
        ("check", ["check", WRONG], "files"),
        ("refused", ["layout", WRONG], "files"),
        ("layout", ["layout", "--groups", LARGE], "phases"),
        ("ledger", ["ledger", "--nodes", "8", LARGE], "files"),
        ("ledger", ["ledger", WRONG], "files"),
        ("plan", ["plan", "open.par"], "runners_up"),
        ("diff", ["diff", LARGE, "other.par"], "phases"),
        ("compare", ["compare", LARGE, "metrics.jsonl"], "phases"),
    ],
)
def test_what_is_printed(
    shape: str,
    command: list[Any],
    full: str,
    parlay: Any,
    page: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("open.par").write_text(OPEN)
    Path("other.par").write_text(LARGE.read_text().replace("pp = 4", "pp = 8"))
    Path("metrics.jsonl").write_text(json.dumps(page.shapes["metrics"]) + "\n")
    found = json.loads(parlay(*command, "--json").out)
    assert found[full]
    assert page.lacking(found, shape) == []


def test_what_is_missing_is_found(page: Any) -> None:
    page = type(page)({"shape": {"a": [{"b": 0}], "c": {}}})
    assert page.lacking({"a": [{"b": 1}, {}]}, "shape") == [".a[].b", ".c"]
