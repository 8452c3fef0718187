"""What several commands print alike."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TextIO

from parlay.compiler.pipeline import Job, checked, load
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.diagnostics.terminal import render

if TYPE_CHECKING:
    from parlay.dsl.units import Quantity
    from rich.console import Console
    from rich.text import Text


def print_json(document: Any) -> None:
    """One JSON document on stdout, whole or not at all."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def failed(*jobs: Job, words: str = "", json: bool, status: int = 1) -> int:
    """The status of a command that has no answer; with `json` its document, of why, on stdout.

    What people read of it has been told on stderr: the diagnostics of `jobs`, or `words`.
    """
    if json:
        print_json(failure(jobs, words, status=status))
    return status


def failure(jobs: Sequence[Job], words: str, *, status: int) -> dict[str, Any]:
    """The document in place of the one asked for: the files as `check --json` tells them."""
    from parlay.dsl.diagnostics.to_json import file_entry

    files = [file_entry(str(job.path), job.diagnostics, job.sources) for job in jobs]
    return {"version": 1, "status": status, "error": words or None, "files": files}


def colored(stream: TextIO) -> bool:
    """Whether colour is wanted: a terminal, unless NO_COLOR says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def console(
    stream: IO[str] | None = None, *, least: int = 0, markup: bool = True, soft_wrap: bool = False
) -> Console:
    """Where tables are printed, at least so many columns wide; plain where no colour is wanted.

    Nothing printed there is searched for numbers and paths to be coloured. rich itself would keep
    what is bold under NO_COLOR.
    """
    from rich.console import Console

    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    made = Console(
        file=stream, highlight=False, color_system=system, markup=markup, soft_wrap=soft_wrap
    )
    made.width = max(made.width, least)
    return made


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


def priced(path: Path, *, at: Quantity | None = None) -> Job:
    """The job of a file with its diagnostics, its errors told.

    Of errors that leave it its figures (`has_figures`) what is then printed is of a job that does
    not run, and `1 if job.errors` is how the command ends. Asserts are judged at the speed `at`.
    """
    job = checked(load(path), at=at)
    refused(replace(job, diagnostics=job.errors))
    return job


def has_figures(job: Job) -> bool:
    """Whether the errors of a job, if it has any, leave it figures that can be believed."""
    return all(each.code[0] in PRICED for each in job.errors)


def incomplete(job: Job, needs: str, *, json: bool = False) -> int:
    """Tells why a job without errors of its text has no answer: what the rules say, else `needs`.

    A file of one block alone is a good file, to be imported; for more than `check` it is too
    little, which no rule says. Gives the status.
    """
    job = checked(job)
    show([job], summary=True, stream=sys.stderr)
    words = "" if job.errors else f"{job.path}: {needs}"
    if words:
        print(f"parlay: {harmless(words)}", file=sys.stderr)
    return failed(job, words=words, json=json)
