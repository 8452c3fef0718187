"""`parlay report`: one page for whoever decides on a layout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from parlay.compiler import pipeline, report
from parlay.compiler.commands.compile import opened
from parlay.compiler.commands.ledger import Account, document
from parlay.compiler.commands.printing import incomplete, refused, show
from parlay.compiler.commands.scaling import scaling
from parlay.compiler.layout import Layout
from parlay.compiler.layout import to_json as layout_to_json
from parlay.compiler.ledger.asserts import judge
from parlay.compiler.ledger.document import ledger
from parlay.compiler.output import sealed, write_page
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics.cells import harmless

STDOUT = Path("-")


def run(file: Path, out: Path, *, nodes: Sequence[int] = (), force: bool = False) -> int:
    """Writes the page of a job without errors to `out`; 1 and no page for any other."""
    job = pipeline.check(file)
    if refused(opened(job, "report")):
        return 1
    layouts = [pipeline.lay_out(phase) for phase in job.phases]
    if any(
        layout is None or phase.spec.model is None
        for phase, layout in zip(job.phases, layouts, strict=True)
    ):
        incomplete(job, "a report needs a model and a cluster")
        return 1
    show([job], summary=False, stream=sys.stderr)
    parts = [
        _part(job, phase, layout, nodes)
        for phase, layout in zip(job.phases, layouts, strict=True)
        if layout is not None
    ]
    text = report.page(report.Subject(str(file), job.sources, job.diagnostics, parts))
    if out == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(sealed(text))
        return 0
    return _written(job, out, text, force=force)


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
