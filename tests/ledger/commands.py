"""Running `parlay` in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parlay.compiler.cli import app
from typer.testing import CliRunner

JOB = """
model from "llama3-8b"
cluster { nodes = 2  node from "dgx-h100" { gpu { price = 2$/h } } }
parallel { tp = 8  dp = auto  zero = 1 }
train { seq = 8Ki  micro_batch = 1  global_batch = 64  recompute = full  tokens = 1T }
"""


def run(folder: Path, text: str, *arguments: str) -> Any:
    """The result of `parlay COMMAND job.par …` with the job's text in a file."""
    file = folder / "job.par"
    file.write_text(text)
    command, *rest = arguments
    return CliRunner().invoke(app, [command, str(file), *rest])


def phases(result: Any) -> list[dict[str, Any]]:
    """The phases of the one file of a `ledger --json`."""
    found: list[dict[str, Any]] = json.loads(result.stdout)["files"][0]["phases"]
    return found
