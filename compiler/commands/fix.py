"""`parlay check --fix`: applies what diagnostics offer to a tool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parlay.compiler import pipeline
from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, Severity
from parlay.dsl.diagnostics.order import in_order

ROUNDS: Final = 10
"""A fix may bring up what it hid; after so many rounds two of them undo each other."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A fix that was applied, with the place of its diagnostic in the text before it."""

    code: str
    title: str
    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file's text before and after, and what was applied; the same text where nothing was."""

    before: str
    after: str
    applied: tuple[Applied, ...]


def fixed(
    path: Path, targets: Sequence[str] = (), texts: Mapping[Path, str] = pipeline.NO_TEXTS
) -> Fixed:
    """The text of the file at `path` with the fixes of its errors and warnings applied.

    Of every diagnostic the first fix, of a warning the first that makes no error (a target may
    refuse what the general rules suggest), of overlapping ones the first in the text; then the text
    is checked again, until no fix is left or `ROUNDS` is over. Nothing is written. What stands in
    an imported file is that file's to fix, and a note informs: neither is touched. `texts` stand in
    place of what files hold.
    """
    name = str(path)
    resolved = Path(os.path.realpath(path))
    job = pipeline.check(path, targets, texts)
    if name not in job.sources:
        return Fixed("", "", ())
    before = text = job.sources[name].text
    applied: list[Applied] = []
    seen = {text}

    def harms(fix: Fix) -> bool:
        """Whether the text with this fix alone has an error that it has not now."""
        tried = pipeline.check(path, targets, {**texts, resolved: apply(text, fix.edits)})
        return not _errors(tried) <= _errors(job)

    for _ in range(ROUNDS):
        chosen = _chosen(job, name, harms)
        after = apply(text, [edit for _, fix in chosen for edit in fix.edits])
        # A text that was there already would come back for ever.
        if after in seen:
            break
        source = job.sources[name]
        for diagnostic, fix in chosen:
            at = source.position(diagnostic.span.start if diagnostic.span else 0)
            applied.append(Applied(diagnostic.code, fix.title, name, at.line, at.column))
        seen.add(after)
        text = after
        job = pipeline.check(path, targets, {**texts, resolved: text})
    return Fixed(before, text, tuple(applied))


def _errors(job: pipeline.Job) -> set[str]:
    return {each.code for each in job.errors}


def _chosen(
    job: pipeline.Job, name: str, harms: Callable[[Fix], bool]
) -> list[tuple[Diagnostic, Fix]]:
    """A fix of every error and warning that changes this file alone, none overlapping."""
    chosen: list[tuple[Diagnostic, Fix]] = []
    taken: list[Edit] = []
    for diagnostic in in_order(job.diagnostics):
        if diagnostic.severity is Severity.NOTE or not diagnostic.fixes:
            continue
        here = [f for f in diagnostic.fixes if all(edit.span.file == name for edit in f.edits)]
        # What an error hid may come up once it is mended; a warning hides nothing.
        if diagnostic.severity is Severity.WARNING:
            fix = next((each for each in here if not harms(each)), None)
        else:
            fix = diagnostic.fixes[0] if diagnostic.fixes[0] in here else None
        if fix is None:
            continue
        edits = [edit for edit in fix.edits if edit not in taken]
        if not edits or any(_meet(a, b) for a in edits for b in taken):
            continue
        chosen.append((diagnostic, fix))
        taken.extend(edits)
    return chosen


def _meet(a: Edit, b: Edit) -> bool:
    """Whether two edits share a character, or change the text at one place."""
    return a.span.start <= b.span.end and b.span.start <= a.span.end


def apply(text: str, edits: Iterable[Edit]) -> str:
    """`text` with edits that do not overlap, in any order; one given twice is made once."""
    for edit in sorted(set(edits), key=lambda one: (one.span.start, one.span.end), reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text
