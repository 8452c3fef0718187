"""The last tables of `parlay ledger`: asserts, and the same file on other numbers of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from parlay.compiler.commands.printing import plain
from parlay.compiler.commands.scaling import Point
from parlay.compiler.commands.tables import add_figures, print_table, table_of
from parlay.compiler.ledger.asserts import Judgement
from parlay.compiler.ledger.time import TimeLine
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


def print_time(console: Console, time: TimeLine) -> None:
    """The parts of the step with their formulas and sources, then the figures made of them."""
    table = table_of("Parts of the step")
    for title in ("part", "seconds", "formula", "source"):
        table.add_column(title, justify="right" if title == "seconds" else "left")
    for share in time.shares:
        words = f"{share.formula}, x {share.factor:.3g}"
        table.add_row(share.name, f"{share.seconds:.4g}", plain(words), plain(share.source))
    print_table(console, table)
    for name, formula in time.formulas.items():
        console.print(f"  {name} = {formula}", markup=False)


def print_scaling(console: Console, points: Sequence[Point]) -> None:
    """Strong and weak scaling side by side, one row a number of nodes."""
    for kind, words in (("strong", "the same global batch"), ("weak", "a batch for each replica")):
        rows = [point for point in points if point.kind == kind]
        if not rows:
            continue
        table = table_of(f"{kind.capitalize()} scaling: {words}")
        heads = ("nodes", "GPUs", "dp", "batch", "step", "efficiency", "MFU", "peak", "days")
        money = any(point.cost is not None for point in rows)
        for title in (*heads, "GPU-hours", *(("cost",) if money else ())):
            add_figures(table, title)
        for point in rows:
            cells = _cells(point) if money else _cells(point)[:9]
            table.add_row(f"{point.nodes:,}", f"{point.gpus:,}", *cells)
        print_table(console, table)
        for point in rows:
            if point.refused is not None:
                words = "1 node" if point.nodes == 1 else f"{point.nodes:,} nodes"
                console.print(f"  {words}: {point.refused}", markup=False, style="red")


def _cells(point: Point) -> tuple[str, ...]:
    if point.refused is not None:
        batch = "" if point.global_batch is None else f"{point.global_batch:,}"
        return ("" if point.dp is None else f"{point.dp:,}", batch, "refused")
    peak = "" if point.peak_bytes is None else show(Fraction(point.peak_bytes), Dimension.DATA)
    return (
        f"{point.dp:,}",
        "" if point.global_batch is None else f"{point.global_batch:,}",
        "" if point.step_seconds is None else f"{point.step_seconds:.3g} s",
        "" if point.efficiency is None else f"{point.efficiency:.1%}",
        "" if point.mfu is None else f"{point.mfu:.1%}",
        peak if point.fits else f"[red]{peak}[/]",
        "" if point.days is None else f"{point.days:.3g}",
        "" if point.gpu_hours is None else f"{point.gpu_hours:,.0f}",
        "" if point.cost is None else f"${point.cost:,.0f}",
    )
