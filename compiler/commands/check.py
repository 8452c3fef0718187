"""`parlay check`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import print_json, show
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.source import Source


def run(
    files: Sequence[Path],
    targets: Sequence[str],
    format: str,
    *,
    fix: bool = False,
    watch: bool = False,
) -> int:
    """Prints every diagnostic of every file; 1 where one of them is an error.

    With `fix` what diagnostics offer is applied first; with `watch` all of it is done again after
    every change, until Ctrl-C.
    """
    if not watch:
        return _once(files, targets, format, fix=fix)[0]
    from parlay.compiler.commands.watch import watch as watched

    return watched(files, lambda: _once(files, targets, format, fix=fix)[1])


def _once(
    files: Sequence[Path], targets: Sequence[str], format: str, *, fix: bool
) -> tuple[int, list[Path]]:
    """The status, and the files that took part."""
    unwritten = False
    for path in dict.fromkeys(files) if fix else ():
        unwritten |= not _fix(path, targets, sys.stdout if format == "terminal" else sys.stderr)
    jobs = [pipeline.check(path, targets) for path in dict.fromkeys(files)]
    _print(jobs, format)
    names = {name for job in jobs for name in job.sources}
    status = 1 if unwritten or any(job.errors for job in jobs) else 0
    return status, sorted({*files, *map(Path, names)})


def _fix(path: Path, targets: Sequence[str], stream: TextIO) -> bool:
    """Applies and tells the fixes of one file; False where it could not be written."""
    from parlay.compiler.commands.fix import fixed
    from parlay.compiler.commands.rewrite import reason, rewrite

    found = fixed(path, targets)
    if found.after == found.before:
        return True
    try:
        rewrite(path, found.after)
    except OSError as failure:
        words = f"parlay: {harmless(str(path))} cannot be written: {reason(failure)}"
        print(words, file=sys.stderr)
        return False
    for each in found.applied:
        where = f"{harmless(each.file)}:{each.line}:{each.column}"
        print(f"fixed {where} {each.code}: {harmless(each.title)}", file=stream)
    return True


def _print(jobs: Sequence[pipeline.Job], format: str) -> None:
    match format:
        case "terminal":
            show(jobs, summary=True)
        case "json":
            from parlay.dsl.diagnostics.to_json import to_json

            print_json(to_json([(str(j.path), j.diagnostics) for j in jobs], _sources(jobs)))
        case "sarif":
            from parlay.dsl.diagnostics.sarif import to_sarif

            told = [diagnostic for job in jobs for diagnostic in job.diagnostics]
            print_json(to_sarif(told, _sources(jobs)))
        case "github":
            from parlay.dsl.diagnostics.github import to_github

            told = [diagnostic for job in jobs for diagnostic in job.diagnostics]
            sys.stdout.write(to_github(told, _sources(jobs)))


def _sources(jobs: Sequence[pipeline.Job]) -> dict[str, Source]:
    return {name: source for job in jobs for name, source in job.sources.items()}
