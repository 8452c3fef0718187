"""What several commands print alike."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from parlay.compiler.pipeline import Job, checked, load
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.diagnostics.terminal import render

if TYPE_CHECKING:
    from parlay.dsl.units import Quantity
    from rich.text import Text


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


def plain(text: str) -> Text:
    """`text` for a rich console: nothing in it is markup, and no terminal obeys it."""
    from rich.text import Text

    return Text(harmless(text))


def refused(job: Job) -> bool:
    """Whether a job has errors; they are then told on stderr."""
    if not job.errors:
        return False
    show([job], summary=True, stream=sys.stderr)
    return True


PRICED: Final = "MNAW"
"""The classes of errors that leave figures what they are: memory, network, asserts, speed. A layout
whose numbers do not divide has none that could be believed."""


def priced(path: Path, *, at: Quantity | None = None) -> Job | None:
    """The job of a file with its diagnostics; None, its errors told, where it has no figures.

    Errors that leave it its figures are told as well: what is then printed is of a job that does
    not run, and `1 if job.errors` is how the command ends. Asserts are judged at the speed `at`.
    """
    job = checked(load(path), at=at)
    refused(replace(job, diagnostics=job.errors))
    return job if all(each.code[0] in PRICED for each in job.errors) else None


def incomplete(job: Job, needs: str) -> None:
    """Tells why a job without errors of its text has no answer: what the rules say, else `needs`.

    A file of one block alone is a good file, to be imported; for more than `check` it is too
    little, which no rule says.
    """
    job = checked(job)
    show([job], summary=True, stream=sys.stderr)
    if not job.errors:
        print(f"parlay: {harmless(str(job.path))}: {needs}", file=sys.stderr)
