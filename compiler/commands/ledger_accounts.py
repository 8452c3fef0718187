"""The first tables of `parlay ledger`: memory of each stage, and what one rank sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parlay.compiler.commands.tables import add_figures, print_table, table_of
from parlay.compiler.ledger.document import Ledger

if TYPE_CHECKING:
    from parlay.compiler.ledger.memory.record import RankClass
    from rich.console import Console

BAR = 10
STAGES = 16
SHORT = {
    "weights": "weights",
    "gradients": "grads",
    "optimizer": "optim",
    "activations": "activ",
    "logits": "logits",
    "gathered": "gather",
    "buffers": "bufs",
    "temporaries": "temps",
    "reserve": "spare",
}
"""Categories as the table's heads have them."""


def print_memory(console: Console, each: Ledger, *, formulas: bool) -> None:
    """The worst stages first, with a bar against the budget; those that hold alike are one row."""
    memory = each.memory
    alike: dict[tuple[object, ...], list[RankClass]] = {}
    for one in sorted(memory.classes, key=lambda one: (-one.peak_bytes, one.stage)):
        alike.setdefault((one.peak.name, *one.peak.categories.values()), []).append(one)
    classes = [same[0] for same in alike.values()]
    spans = [_span(tuple(one.stage for one in same)) for same in alike.values()]
    used = [name for name in SHORT if any(one.peak.categories[name] for one in classes)]
    size, unit = (2**30, "GiB") if memory.budget_bytes >= 2**33 else (2**20, "MiB")
    budget = memory.budget_bytes / size
    table = table_of(f"Memory in {unit}, of {budget:.1f}")
    for title in ("stage", "peak", "", "at", *(SHORT[name] for name in used)):
        add_figures(table, title, left=title in ("", "at"))
    for one, span in zip(classes[:STAGES], spans, strict=False):
        share = one.peak_bytes / memory.budget_bytes if memory.budget_bytes else 0.0
        color = "red" if share > 1 else "yellow" if share > 0.9 else "green"
        filled = min(BAR, round(share * BAR))
        bar = f"[{color}]{'█' * filled}[/]{'░' * (BAR - filled)} {share:4.0%}"
        categories = one.peak.categories
        table.add_row(
            span,
            f"{one.peak_bytes / size:.1f}",
            bar,
            one.peak.name,
            *(f"{categories[name] / size:.1f}" if categories[name] else "" for name in used),
        )
    print_table(console, table)
    if emptier := sum(len(same) for same in list(alike.values())[STAGES:]):
        console.print(f"… and {emptier} emptier stages")
    for bytes_, place in (
        (memory.host_bytes_per_node, "host memory"),
        (memory.disk_bytes_per_node, "local disks"),
    ):
        if bytes_:
            console.print(f"{size_of(bytes_)} of {place} a node")
    if formulas:
        for line in classes[0].peak.lines:
            console.print(f"  {line.category:12} {line.name}: {line.formula} = {line.value_bytes}")
        for kind in memory.layers:
            console.print("  one expert layer" if kind.experts else "  one dense layer")
            for row in kind.saved:
                console.print(f"    {row.name}: {row.formula} = {row.value_bytes}")


def print_communication(console: Console, each: Ledger, *, formulas: bool) -> None:
    lines = sorted(each.communication, key=lambda line: -line.wire_bytes_per_step)
    if not lines:
        return
    table = table_of("Sent by one rank in a step")
    for title in ("group", "what", "collective", "calls", "each", "sent", "link", "stages"):
        add_figures(table, title, left=title not in ("calls", "each", "sent"))
    if formulas:
        table.add_column("formula")
    for line in lines if formulas else lines[:12]:
        cells = [
            line.group,
            line.what,
            line.collective,
            f"{line.calls_per_step:,}",
            size_of(line.bytes_per_call),
            size_of(line.wire_bytes_per_step),
            line.link,
            _span(line.stages),
        ]
        table.add_row(*cells, *((line.formula,) if formulas else ()))
    print_table(console, table)
    if len(lines) > 12 and not formulas:
        console.print(f"… and {len(lines) - 12} smaller ones (--formulas shows all)")


def _span(stages: tuple[int, ...]) -> str:
    first, last = stages[0], stages[-1]
    if len(stages) == 1:
        return str(first)
    if len(stages) == last - first + 1:
        return f"{first}-{last}"
    return ", ".join(map(str, stages))


def size_of(number: float) -> str:
    """Bytes for people: `128.00 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024
    raise AssertionError
