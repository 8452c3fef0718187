"""The last tables of `parlay ledger`: asserts, and the same file on other numbers of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from parlay.compiler.commands.printing import plain
from parlay.compiler.commands.scaling import Point
from parlay.compiler.ledger.asserts import Judgement
from parlay.dsl.units import Dimension, show

if TYPE_CHECKING:
    from rich.console import Console


def print_asserts(console: Console, judgement: Judgement) -> None:
    """One line an assert."""
    for verdict in judgement.verdicts:
        mark = "[green]holds[/]" if verdict.holds else "[red]fails[/]"
        value = show(verdict.value.value, verdict.value.dimension)
        console.print(plain(f"assert {verdict.text}: "), end="")
        console.print(mark, end="")
        console.print(f" ({value})", markup=False)


def print_scaling(console: Console, points: Sequence[Point]) -> None:
    """Strong and weak scaling side by side, one row a number of nodes."""
    from rich.table import Table

    for kind, words in (("strong", "the same global batch"), ("weak", "a batch for each replica")):
        rows = [point for point in points if point.kind == kind]
        if not rows:
            continue
        table = Table(box=None, header_style="bold", title=f"{kind.capitalize()} scaling: {words}")
        table.title_justify = "left"
        heads = ("nodes", "GPUs", "dp", "batch", "step", "efficiency", "MFU", "peak", "days")
        for title in (*heads, "GPU-hours", "cost"):
            table.add_column(title, justify="right")
        for point in rows:
            table.add_row(str(point.nodes), f"{point.gpus:,}", *_cells(point))
        console.print(table)
        for point in rows:
            if point.refused is not None:
                console.print(f"  {point.nodes} nodes: {point.refused}", markup=False, style="red")


def _cells(point: Point) -> tuple[str, ...]:
    if point.refused is not None:
        return ("" if point.dp is None else str(point.dp), str(point.global_batch or ""), "refused")
    peak = "" if point.peak_bytes is None else show(Fraction(point.peak_bytes), Dimension.DATA)
    return (
        str(point.dp),
        "" if point.global_batch is None else f"{point.global_batch:,}",
        "" if point.step_seconds is None else f"{point.step_seconds:.3g} s",
        "" if point.efficiency is None else f"{point.efficiency:.1%}",
        "" if point.mfu is None else f"{point.mfu:.1%}",
        peak if point.fits else f"[red]{peak}[/]",
        "" if point.days is None else f"{point.days:.3g}",
        "" if point.gpu_hours is None else f"{point.gpu_hours:,.0f}",
        "" if point.cost is None else f"${point.cost:,.0f}",
    )
