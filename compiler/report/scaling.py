"""The same file on other numbers of nodes, as `parlay ledger --nodes` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import count, data, money, plain, seconds, share
from parlay.compiler.report.part import Part

KINDS: Final = (
    ("strong", "Strong scaling: the same global batch"),
    ("weak", "Weak scaling: a batch that grows with the replicas"),
)


@dataclass(frozen=True, slots=True)
class Size:
    """One number of nodes, at `at` of the document; `bar` is the efficiency in hundredths."""

    at: str
    nodes: Figure | None
    gpus: Figure | None
    replicas: Figure | None
    batch: Figure | None
    step: Figure | None
    efficiency: Figure | None
    bar: float
    mfu: Figure | None
    peak: Figure | None
    fits: bool
    days: Figure | None
    hours: Figure | None
    cost: Figure | None
    refused: str
    here: bool


@dataclass(frozen=True, slots=True)
class ScalingTable:
    """One kind of scaling."""

    kind: str
    title: str
    sizes: tuple[Size, ...]
    costs: bool


def scaling_section(part: Part) -> tuple[ScalingTable, ...]:
    """Strong, then weak."""
    points = part.ledger.at("scaling") or []
    found = []
    for kind, title in KINDS:
        sizes = tuple(_size(part, n) for n, point in enumerate(points) if point["kind"] == kind)
        if sizes:
            found.append(ScalingTable(kind, title, sizes, any(size.cost for size in sizes)))
    return tuple(found)


def _size(part: Part, number: int) -> Size:
    at = f"scaling.{number}"
    figures = part.ledger.below(at)
    cluster = part.phase.spec.cluster
    assert cluster is not None
    efficiency = figures.at("efficiency")
    return Size(
        at,
        figures.figure("nodes", count),
        figures.figure("gpus", count),
        figures.figure("dp", count),
        figures.figure("global_batch", count),
        figures.figure("step_seconds", seconds),
        figures.figure("efficiency", share),
        round(100 * min(1.25, efficiency or 0.0), 1),
        figures.figure("mfu", share),
        figures.figure("peak_bytes", data),
        bool(figures.at("fits")),
        figures.figure("days", plain),
        figures.figure("gpu_hours", count),
        figures.figure("cost", money),
        figures.at("refused") or "",
        figures.at("nodes") == cluster.nodes,
    )
