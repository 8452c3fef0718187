"""What several commands print alike."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from parlay.compiler.pipeline import Job
from parlay.dsl.diagnostics.terminal import render


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def colored(stream: TextIO) -> bool:
    """Whether colour is wanted: a terminal, unless NO_COLOR says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def show(jobs: Sequence[Job], *, summary: bool, stream: TextIO | None = None) -> None:
    """The diagnostics of `jobs` as people read them."""
    stream = stream or sys.stdout
    told = [diagnostic for job in jobs for diagnostic in job.diagnostics]
    sources = {name: source for job in jobs for name, source in job.sources.items()}
    width = shutil.get_terminal_size((100, 24)).columns
    stream.write(render(told, sources, color=colored(stream), width=width, summary=summary))


def refused(job: Job) -> bool:
    """Whether a job has errors; they are then told on stderr."""
    if not job.errors:
        return False
    show([job], summary=True, stream=sys.stderr)
    return True
