"""Slurm: a batch script for the code of another target, its entry point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.slurm.batch import Job, needed, plain, script
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.source import Source

__all__ = ["Job", "emit", "needed", "plain", "refusals", "script"]


def refusals(phase: Phase, beside: Sequence[str] = ()) -> Iterator[Diagnostic]:
    """Options that are unfit, and what the entry point cannot express.

    `beside` are the targets that are asked for together with this one.
    """
    from parlay.compiler import backends
    from parlay.compiler.backends.slurm.options import entries_of, refusals_of_options

    own = tuple(refusals_of_options(phase))
    yield from own
    for entry in entries_of(phase, beside):
        if entry in beside:  # it tells that itself
            continue
        for told in backends.refusals(entry, phase):
            if told in own:
                continue
            error = told.severity is Severity.ERROR
            yield replace(told, help=(*told.help, _others(entry))) if error else told


def emit(
    phase: Phase, layout: Layout, sources: Mapping[str, Source], beside: Sequence[str] = ()
) -> Emission:
    """job.sbatch; where several entry points are asked for, a job for each, called after it."""
    from parlay.compiler.backends.slurm.entries import job_of
    from parlay.compiler.backends.slurm.options import entries_of

    told = tuple(refusals(phase, beside))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in told):
        return Emission({}, told)
    entries = entries_of(phase, beside)
    files = {
        "job.sbatch" if len(entries) == 1 else f"job-{entry}.sbatch": script(
            job_of(entry, phase, sources)
        )
        for entry in entries
    }
    return Emission(files, told)


def _others(entry: str) -> str:
    return (
        f"the job starts the code of {entry}; another is asked for beside it, "
        "`--target megatron --target slurm`, or named, `options { entry = megatron }`"
    )
