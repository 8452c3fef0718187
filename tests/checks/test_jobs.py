"""Jobs at the edges of every rule, and all that the rule tells of them, word for word.

`jobs/CODE.par` holds the jobs, parted by lines of `RULE`; `tests/ui/jobs/CODE.txt` what the rule
tells of each, as it is rendered, with the edits of its fixes. `PARLAY_UPDATE=1 pytest
tests/checks/test_jobs.py` writes those anew; their difference is then read like any other change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.checks import check_phases, codes, rule, subject_of
from parlay.dsl.diagnostics import Diagnostic, Edit
from parlay.dsl.diagnostics.terminal import render

JOBS = Path(__file__).parent / "jobs"
TOLD = Path(__file__).parents[1] / "ui" / "jobs"
RULE = "# ──\n"
ABOUT_ALLOW = ("T290", "T291", "W290")
FILES = [code for code in codes() if (JOBS / f"{code}.par").exists()]


@cache
def _loaded(text: str) -> pipeline.Job:
    path = Path("run.par")
    return pipeline.load(path, {path.resolve(): text})


def _found(code: str, job: pipeline.Job) -> Iterator[Diagnostic]:
    """What one rule finds in every phase."""
    if code in ABOUT_ALLOW:
        yield from (each for each in check_phases(job.phases) if each.code == code)
        return
    asked, subject = rule(code), None
    assert asked is not None
    for phase in job.phases:
        subject = subject_of(phase, subject)
        if subject.has(asked.READS):
            yield from asked.check(subject)


def _edited(text: str, edit: Edit) -> str:
    line = text.count("\n", 0, edit.span.start) + 1
    column = edit.span.start - (text.rfind("\n", 0, edit.span.start) + 1) + 1
    return f"{line}:{column} `{text[edit.span.start : edit.span.end]}` becomes `{edit.text}`"


def told(code: str, text: str) -> str:
    """What one rule tells of a job, and what its fixes change."""
    job = _loaded(text)
    found = tuple(_found(code, job))
    if not found:
        return "nothing\n"
    lines = [render(found, job.sources, color=False, width=100, summary=False).rstrip("\n")]
    for each in found:
        for fix in each.fixes:
            edits = "; ".join(_edited(text, edit) for edit in fix.edits)
            lines.append(f"{fix.title}: {edits}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("code", FILES)
def test_jobs(code: str) -> None:
    jobs = (JOBS / f"{code}.par").read_text().split(RULE)
    kept = TOLD / f"{code}.txt"
    if os.environ.get("PARLAY_UPDATE"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(RULE.join(told(code, text) for text in jobs))
    wanted = kept.read_text().split(RULE)
    assert len(wanted) == len(jobs)
    for text, words in zip(jobs, wanted, strict=True):
        assert told(code, text) == words, text


@pytest.mark.parametrize("code", FILES)
def test_every_file_of_jobs_has_both_kinds(code: str) -> None:
    """Some the rule speaks of, and some it is silent about."""
    kept = (TOLD / f"{code}.txt").read_text().split(RULE)
    assert len(set(kept)) > 1 and "nothing\n" in kept


def test_nothing_is_kept_without_jobs() -> None:
    assert {path.stem for path in TOLD.glob("*.txt")} == set(FILES)
