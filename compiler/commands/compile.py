"""`parlay compile`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parlay.compiler import pipeline
from parlay.compiler.backends import TARGETS
from parlay.compiler.backends.vendored import FOLDER, vendored
from parlay.compiler.commands.printing import refused, show
from parlay.compiler.output import write_folders
from parlay.dsl.diagnostics.cells import harmless


def list_targets() -> int:
    """Names the targets and what each expresses."""
    for name, target in TARGETS.items():
        print(f"{name}: {target.says}")
    return 0


def run(file: Path, targets: Sequence[str], out: Path, *, force: bool, vendor: bool = False) -> int:
    """Writes the files of every target into `out`, all of them or nothing.

    With `vendor` the runtime stands beside the code that calls it.
    """
    job = pipeline.check(file, targets)
    if refused(opened(job, "compile")):
        return 1
    emissions = [(target, pipeline.emit(job, target, targets)) for target in targets]
    for _, emission in emissions:
        if refused(replace(job, diagnostics=emission.diagnostics)):
            return 1
    show([job], summary=False, stream=sys.stderr)
    folders = {
        out / folder: vendored(files) if vendor else files
        for _, emission in emissions
        for folder, files in emission.folders().items()
    }
    try:
        foreign = write_folders(folders, force=force)
    except OSError as failure:
        why = failure.strerror or str(failure)
        print(f"parlay: {_shown(out)} cannot be written: {harmless(why)}", file=sys.stderr)
        return 1
    for path, names in foreign.items():
        _tell_foreign(path, names)
    if foreign:
        return 1
    for path, files in folders.items():
        own = [name for name in sorted(files) if not name.startswith(f"{FOLDER}/")]
        copied = [f"{FOLDER}/"] if len(own) < len(files) else []
        print(f"{_shown(path)}/  {'  '.join([*own, *copied])}")
    return 0


def _shown(path: Path) -> str:
    return harmless(str(path))


def opened(job: pipeline.Job, command: str) -> pipeline.Job:
    """The job with an error more for every phase with open degrees: `command` needs them all."""
    from parlay.compiler.spec.problems import needs_degrees

    told = tuple(
        needs_degrees(command, [(path, phase.origins.span(path)) for path in sorted(phase.open)])
        for phase in job.phases
        if phase.open
    )
    return replace(job, diagnostics=(*job.diagnostics, *told))


def _tell_foreign(folder: Path, names: Sequence[str]) -> None:
    some = ", ".join(map(harmless, names[:5]))
    listed = some + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    print(
        f"parlay: {_shown(folder)}/ holds what Parlay did not write as it stands: {listed}. "
        "Nothing was changed; --force replaces it.",
        file=sys.stderr,
    )
