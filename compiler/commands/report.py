"""`parlay report`: one page for whoever decides on a layout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from parlay.compiler import pipeline, report
from parlay.compiler.commands import plan
from parlay.compiler.commands.compile import opened
from parlay.compiler.commands.fix import apply
from parlay.compiler.commands.ledger import Account, document
from parlay.compiler.commands.plan_writing import edits_of
from parlay.compiler.commands.printing import PRICED, incomplete, show
from parlay.compiler.commands.scaling import scaling
from parlay.compiler.layout import Layout
from parlay.compiler.layout import to_json as layout_to_json
from parlay.compiler.ledger.asserts import judge
from parlay.compiler.ledger.document import ledger
from parlay.compiler.output import sealed, write_page
from parlay.compiler.planner import Plan, settled
from parlay.compiler.planner import plan as search
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics.cells import harmless

STDOUT = Path("-")


def run(file: Path, out: Path, *, nodes: Sequence[int] = (), force: bool = False) -> int:
    """Writes the page of a job to `out`; 1 where it has errors, which are then what it tells.

    Without a text there is no page, nor without a model and a cluster in a file without errors.
    """
    job, plans = _planned(pipeline.check(file))
    job = opened(job, "report")
    laid = [(phase, pipeline.lay_out(phase)) for phase in job.phases]
    whole = all(layout is not None and phase.spec.model is not None for phase, layout in laid)
    if not whole and not job.errors:
        incomplete(job, "a report needs a model and a cluster")
        return 1
    show([job], summary=bool(job.errors), stream=sys.stderr)
    if not job.sources:
        return 1
    parts = [
        _part(job, phase, layout, nodes)
        for phase, layout in laid
        if layout is not None and whole and all(each.code[0] in PRICED for each in job.errors)
    ]
    shown = [plan.entry(each) for each in plans]
    text = report.page(report.Subject(str(file), job.sources, job.diagnostics, parts, shown))
    failed = 1 if job.errors else 0
    if out == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(sealed(text))
        return failed
    return _written(job, out, text, force=force) or failed


def _planned(job: pipeline.Job) -> tuple[pipeline.Job, list[Plan]]:
    """The job with what it leaves open chosen and written, as far as the planner can."""
    if job.errors:
        return job, []
    phases = plan.planned(job.phases, None)
    if isinstance(phases, str):
        if any(each.open for each in job.phases):
            print(f"{harmless(str(job.path))}: {phases}", file=sys.stderr)
        return job, []
    plans = [search(each, job.sources) for each in phases]
    if not all(each.best.top for each in plans):
        return job, plans
    edits = edits_of(job, plans)
    if edits:
        text = apply(job.sources[str(job.path)].text, edits)
        return pipeline.check(job.path, (), {job.path.resolve(): text}), plans
    chosen = {each.phase.name: settled(each.phase, each.best.top[0]) for each in plans}
    known = tuple(chosen.get(each.name, each) for each in job.phases)
    return replace(job, phases=known), plans


def _part(job: pipeline.Job, phase: Phase, layout: Layout, nodes: Sequence[int]) -> report.Part:
    book = ledger(phase, layout)
    points = scaling(phase, book, nodes or tuple(_around(phase)))
    account = Account(book, judge(phase, book, job.sources), points)
    groups = layout_to_json(layout, name=phase.name)
    return report.part(phase, layout, book, document(account, formulas=True), groups)


def _around(phase: Phase) -> Iterator[int]:
    """A quarter, half and twice as many nodes as the file has, where they are whole."""
    cluster = phase.spec.cluster
    here = cluster.nodes if cluster else 1
    yield from (here // part for part in (4, 2, 1) if here % part == 0)
    yield 2 * here


def _written(job: pipeline.Job, out: Path, text: str, *, force: bool) -> int:
    shown = harmless(str(out))
    try:
        if any(_same(out, Path(name)) for name in job.sources):
            print(f"parlay: {shown} is the job itself; -o names another file", file=sys.stderr)
            return 1
        written = write_page(out, text, force=force)
    except OSError as failure:
        why = harmless(failure.strerror or str(failure))
        print(f"parlay: {shown} cannot be written: {why}", file=sys.stderr)
        return 1
    if not written:
        print(
            f"parlay: {shown} is not as Parlay wrote it, or not of Parlay. Nothing was changed; "
            "--force replaces it.",
            file=sys.stderr,
        )
        return 1
    print(f"{shown}: {len(text.encode()) / 1000:.0f} kB, opens in any browser")
    return 0


def _same(out: Path, source: Path) -> bool:
    return out.exists() and source.exists() and out.samefile(source)
