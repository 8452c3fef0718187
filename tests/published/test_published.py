"""Every published figure comes out of a command, within its tolerance."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.cli import app
from typer.testing import CliRunner

from .cases import CASES, REFUSED

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
with (HERE / "published.csv").open(newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}


def printed(par: str, command: str, path: str, folder: Path) -> Any:
    """What `parlay COMMAND` prints at `path` for the job `par`."""
    file = folder / "job.par"
    file.write_text(par)
    arguments = [str(file) if word == "FILE" else word for word in command.split()]
    result = CliRunner().invoke(app, arguments)
    # A paper's speeds or bytes are asked of layouts that leave a recipe out, and may not fit by it.
    wrong = set(re.findall(r"^error\[(\w+)\]", result.stderr, re.MULTILINE))
    assert wrong <= {"M201", "M204"}, result.output
    assert result.exit_code == bool(wrong), result.output
    document = json.loads(result.stdout)
    at: Any = document["files"][0] if "files" in document else document
    for step in re.findall(r"\[[^\]]+\]|[^.\[\]]+", path):
        if step.startswith("["):
            name, _, value = step[1:-1].partition("=")
            at = next(item for item in at if str(item[name]) == value)
        else:
            at = at[int(step)] if isinstance(at, list) else at[step]
    return at


@pytest.mark.parametrize("row", sorted(CASES))
def test_published(row: str, tmp_path: Path) -> None:
    case, published = CASES[row], ROWS[row]
    value = printed(case.par, case.command, case.path, tmp_path)
    if ";" in published["value"]:
        assert value == [int(part) for part in published["value"].split(";")]
        return
    tolerance = float(published["rel_tol"])
    assert value * case.scale == pytest.approx(float(published["value"]), rel=tolerance, abs=0)


def test_every_row_has_a_place() -> None:
    assert set(ROWS) == set(CASES) | set(REFUSED)


@pytest.mark.parametrize("row", sorted(REFUSED))
def test_refused(row: str, tmp_path: Path) -> None:
    refused = REFUSED[row]
    file = tmp_path / "job.par"
    file.write_text(refused.par)
    arguments = [str(file) if word == "FILE" else word for word in refused.command.split()]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert f"error[{refused.family}" in result.output
    assert refused.words in result.output
