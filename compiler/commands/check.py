"""`parlay check`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import print_json, show
from parlay.dsl.source import Source


def run(files: Sequence[Path], targets: Sequence[str], format: str) -> int:
    """Prints every diagnostic of every file; 1 where one of them is an error."""
    jobs = [pipeline.check(path, targets) for path in dict.fromkeys(files)]
    failed = any(job.errors for job in jobs)
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
    return 1 if failed else 0


def _sources(jobs: Sequence[pipeline.Job]) -> dict[str, Source]:
    return {name: source for job in jobs for name, source in job.sources.items()}
