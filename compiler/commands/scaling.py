"""The same file on other numbers of nodes: `parlay ledger --nodes 8,16,32`.

Strong scaling keeps the global batch, so each replica has fewer microbatches on more nodes; weak
scaling lets it grow with the replicas. The token budget is the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from parlay.compiler.checks import check_phases, subject_of
from parlay.compiler.ledger.document import Ledger, ledger
from parlay.compiler.pipeline import lay_out
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class Point:
    """One number of nodes; `refused` says why it has no figures.

    `efficiency` is tokens a second and GPU over those of the fewest nodes of the same kind.
    """

    kind: str
    nodes: int
    gpus: int
    dp: int | None
    global_batch: int | None
    microbatches: int | None = None
    step_seconds: float | None = None
    efficiency: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    bubble: float | None = None
    peak_bytes: int | None = None
    fits: bool | None = None
    days: float | None = None
    gpu_hours: float | None = None
    cost: float | None = None
    refused: str | None = None


def scaling(phase: Phase, here: Ledger, nodes: Sequence[int]) -> tuple[Point, ...]:
    """Strong, then weak scaling of a phase over `nodes`, ascending."""
    found: list[Point] = []
    for kind in ("strong", "weak"):
        points = [_point(phase, here, kind, number) for number in sorted(dict.fromkeys(nodes))]
        found += _against_the_first(points)
    return tuple(found)


def to_json(points: Sequence[Point]) -> list[dict[str, Any]]:
    """The `scaling` of `parlay ledger --json`."""
    return [asdict(point) for point in points]


def _against_the_first(points: Sequence[Point]) -> Iterator[Point]:
    first = next((p for p in points if p.tokens_per_second), None)
    for point in points:
        if first is None or not point.tokens_per_second or not first.tokens_per_second:
            yield point
            continue
        each = first.tokens_per_second / first.gpus
        yield replace(point, efficiency=point.tokens_per_second / point.gpus / each)


def _point(phase: Phase, here: Ledger, kind: str, nodes: int) -> Point:
    values: dict[str, Any] = {"cluster.nodes": nodes}
    subject = subject_of(phase).with_values(values)
    gpus = nodes * here.spec.cluster.node.gpus if here.spec.cluster else nodes
    dp, train = subject.parallel.dp, here.spec.train
    batch = train.global_batch if train else None
    if kind == "weak" and train is not None and dp is not None:
        batch, rest = divmod(train.global_batch * dp, here.spec.parallel.dp)
        refused = f"global_batch = {train.global_batch} / dp {here.spec.parallel.dp} is not whole"
        if rest:
            return Point(kind, nodes, gpus, dp, None, refused=refused)
        values |= {"train.global_batch": batch, **_budget(train.steps, train.global_batch, batch)}
        subject = subject_of(phase).with_values(values)
    # Spec and values alike: rules read the one, references in the file the other.
    there = replace(phase, spec=subject.spec, asserts=(), evaluator=None)
    wrong = _first_error(there)
    layout = lay_out(there)
    if layout is None or (wrong is not None and not wrong.startswith("M")):
        _, _, words = (wrong or "L: no layout").partition(": ")
        return Point(kind, nodes, gpus, dp, batch, refused=words)
    book = ledger(there, layout)
    time, run, worst = book.time, book.run, book.memory.worst
    return Point(
        kind,
        nodes,
        gpus,
        dp,
        batch,
        microbatches=book.pipeline.microbatches if book.pipeline else None,
        step_seconds=time.step_seconds if time else None,
        tokens_per_second=time.tokens_per_second if time else None,
        mfu=time.mfu if time else None,
        bubble=time.bubble if time else None,
        peak_bytes=worst.peak_bytes,
        fits=worst.peak_bytes <= book.memory.budget_bytes,
        days=run.days,
        gpu_hours=run.gpu_hours,
        cost=run.cost,
    )


def _budget(steps: int | None, before: int, now: int) -> Mapping[str, int]:
    """As many tokens as before in steps of another batch."""
    return {} if steps is None else {"train.steps": max(1, -(-steps * before // now))}


def _first_error(phase: Phase) -> str | None:
    """`CODE: message` of the first error; one of memory only where there is no other."""
    told = [each for each in check_phases([phase]) if each.severity is Severity.ERROR]
    told.sort(key=lambda each: each.code.startswith("M"))
    return f"{told[0].code}: {told[0].message}" if told else None
