"""What a person reads: every rule's Example, rendered, against `tests/ui/CODE.txt`.

`PARLAY_UPDATE=1 pytest tests/checks/test_ui.py` writes the files anew; their difference is then
read like any other change.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.checks import codes, page
from parlay.dsl.diagnostics.terminal import render

SNAPSHOTS = Path(__file__).parents[1] / "ui"


@pytest.mark.parametrize("code", codes())
def test_ui(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = page(code)
    assert found is not None
    Path("run.par").write_text(found.example)
    job = pipeline.check(Path("run.par"))
    shown = render(job.diagnostics, job.sources, color=False, width=100, summary=True)
    snapshot = SNAPSHOTS / f"{code}.txt"
    if os.environ.get("PARLAY_UPDATE"):
        snapshot.write_text(shown)
    assert snapshot.read_text() == shown


def test_no_snapshot_without_a_rule() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(codes())
