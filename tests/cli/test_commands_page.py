"""docs/commands.md: every shape that it shows is there in what the command prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text()
SHAPES = {
    name: json.loads(body)
    for name, body in re.findall(r"^```json (\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
}
WRONG = ROOT / "docs" / "mistakes.par"
LARGE = ROOT / "examples" / "llama-70b-64gpu" / "llama-70b.par"
OPEN = """
model from "llama3-8b"
cluster { node from "dgx-h100" }
parallel { tp = auto, dp = auto, zero = 1 }
train { seq = 4Ki, micro_batch = 1, global_batch = 64, recompute = full }
"""


def lacking(found: Any, shown: Any, at: str = "") -> Iterator[str]:
    """What is shown and not found; an empty list or object may hold anything."""
    if isinstance(shown, dict) and found is not None:
        for name, below in shown.items():
            if not isinstance(found, dict) or name not in found:
                yield f"{at}.{name}"
            else:
                yield from lacking(found[name], below, f"{at}.{name}")
    elif isinstance(shown, list) and shown and isinstance(shown[0], dict):
        for item in found:
            yield from lacking(item, shown[0], f"{at}[]")


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("open.par").write_text(OPEN)
    Path("other.par").write_text(LARGE.read_text().replace("pp = 4", "pp = 8"))
    Path("metrics.jsonl").write_text(json.dumps(SHAPES["metrics"]) + "\n")
    found = json.loads(parlay(*command, "--json").out)
    assert found[full]
    assert list(lacking(found, SHAPES[shape])) == []


def test_what_is_missing_is_found() -> None:
    assert list(lacking({"a": [{"b": 1}, {}]}, {"a": [{"b": 0}], "c": {}})) == [".a[].b", ".c"]


@pytest.mark.slow
@pytest.mark.distributed
def test_what_ranks_print(parlay: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = tmp_path / "job.par"
    job.write_text(
        "model one { hidden = 16, layers = 1, heads = 2, ffn = 32, vocab = 258 }\n"
        'cluster { node from "laptop" { gpus = 2 } }\n'
        "train { seq = 16, micro_batch = 1, global_batch = 2, precision = fp32, steps = 1 }\n"
    )
    found = json.loads(parlay("verify", job, "--json").out)
    assert found["passed"] and list(lacking(found, SHAPES["verify"])) == []
    assert parlay("run", job, "--out", tmp_path / "out").status == 0
    (line,) = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert list(lacking(json.loads(line), SHAPES["metrics"])) == []
