"""`parlay report` in this process, and the documents that its figures are held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parlay.compiler.cli import app
from typer.testing import CliRunner

from .reading import Element, read

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> Any:
    """The result of a command."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


def page_of(path: Path, *more: object, status: int = 0) -> Element:
    """The page of a job, read."""
    result = run("report", path, "-o", "-", *more)
    assert result.exit_code == status, result.output
    return read(result.stdout_bytes.decode())


def documents(path: Path, nodes: str) -> dict[str, Any]:
    """What `--json` says of the same job: the phases of `ledger` and of `layout`."""
    ledger = run("ledger", path, "--json", "--formulas", "--nodes", nodes)
    layout = run("layout", path, "--json")
    return {
        "ledger": json.loads(ledger.stdout)["files"][0]["phases"],
        "layout": json.loads(layout.stdout)["phases"],
    }
