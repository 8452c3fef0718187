"""Memory of every rank class: bars against the budget, and a table of the same."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.ledger.memory import CATEGORIES, Line
from parlay.compiler.report.drawing import Box, Drawing, Stroke, Words, width_of
from parlay.compiler.report.figure import Figure, Figures
from parlay.compiler.report.numbers import count, data
from parlay.compiler.report.part import Part

LEFT, RIGHT, WIDTH = 92.0, 300.0, 1000.0
ROW, BAR, TOP = 22.0, 16.0, 24.0
LETTER = {name: name[0].upper() for name in CATEGORIES} | {
    "activations": "A",
    "gathered": "U",
    "reserve": "S",
    "temporaries": "T",
}
"""The letter of each category, in its boxes and in the legend: colour alone tells nothing."""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One rank class in the table; figures are of the document's part at `at`.

    `over` is what its peak has beyond the budget, None where it fits.
    """

    at: str
    stage: int
    moment: str
    peak: Figure | None
    over: Figure | None
    categories: tuple[Figure | None, ...]


@dataclass(frozen=True, slots=True)
class MemorySection:
    """`lines` are those of the fullest class at its peak; `places` what is held elsewhere.

    `over` are the classes beyond the budget, `beyond` what the fullest has of it.
    """

    drawing: Drawing
    used: tuple[str, ...]
    rows: tuple[ClassRow, ...]
    over: tuple[ClassRow, ...]
    beyond: Figure | None
    budget: Figure | None
    ranks: Figure | None
    fullest: int
    lines_at: str
    lines: tuple[tuple[Line, Figure | None], ...]
    places: tuple[tuple[str, Figure], ...]


def memory_section(part: Part) -> MemorySection:
    """Every class, in the order of the stages."""
    figures, memory = part.ledger, part.book.memory
    used = tuple(
        name for name in CATEGORIES if any(one.peak.categories[name] for one in memory.classes)
    )
    rows = []
    for number, each in enumerate(memory.classes):
        at = f"memory.rank_classes.{number}"
        here = figures.below(at)
        rows.append(
            ClassRow(
                at,
                each.stage,
                each.peak.name,
                here.figure("peak_bytes", data),
                here.figure("over_bytes", data) if here.at("over_bytes") else None,
                tuple(here.figure(f"categories.{name}", data) for name in used),
            )
        )
    fullest = memory.classes.index(memory.worst)
    listed = figures.below(f"memory.rank_classes.{fullest}.lines")
    lines = tuple(
        (line, listed.figure(f"{number}.value_bytes", data))
        for number, line in enumerate(memory.worst.peak.lines)
    )
    return MemorySection(
        _drawing(part, used),
        used,
        tuple(rows),
        tuple(row for row in rows if row.over is not None),
        figures.figure(f"memory.rank_classes.{fullest}.over_bytes", data),
        figures.figure("memory.budget_bytes", data),
        figures.figure(f"memory.rank_classes.{fullest}.ranks", count),
        memory.worst.stage,
        f"memory.rank_classes.{fullest}.lines",
        lines,
        tuple(_places(figures)),
    )


def _places(figures: Figures) -> list[tuple[str, Figure]]:
    named = (
        ("host memory of a node", "memory.host_bytes_per_node"),
        ("local disks of a node", "memory.disk_bytes_per_node"),
    )
    found = [(words, figures.figure(path, data)) for words, path in named]
    return [(words, figure) for words, figure in found if figure is not None and figure.value]


def _drawing(part: Part, used: tuple[str, ...]) -> Drawing:
    memory = part.book.memory
    most = max(memory.budget_bytes, memory.worst.peak_bytes) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    height = TOP + ROW * len(memory.classes) + 6
    drawing = Drawing(
        "memory",
        "Memory of each pipeline stage at its peak",
        f"Stacked bars, one a stage, against the budget of {data(memory.budget_bytes)}; the "
        f"fullest is stage {memory.worst.stage} with {data(memory.worst.peak_bytes)} at "
        f"{memory.worst.peak.name}. The table below has the figures.",
        WIDTH,
        height,
    )
    for number, each in enumerate(memory.classes):
        top = TOP + ROW * number
        foot = top + BAR - 4
        drawing.words.append(Words(f"stage {each.stage}", LEFT - 8, foot, "end"))
        at = LEFT
        for name in used:
            size = each.peak.categories[name]
            if not size:
                continue
            wide = size * scale
            drawing.boxes.append(Box(f"c-{name}", at, top, wide, BAR))
            for label in (name, LETTER[name]):
                if width_of(label) + 6 <= wide:
                    middle = at + wide / 2
                    drawing.words.append(Words(label, middle, foot, "middle", "on"))
                    break
            at += wide
        words = f"{data(each.peak_bytes)} at {each.peak.name}"
        drawing.words.append(Words(words, WIDTH - RIGHT + 8, foot))
    limit = LEFT + memory.budget_bytes * scale
    drawing.strokes.append(Stroke("limit", limit, TOP - 6, limit, height - 2))
    words = f"budget {data(memory.budget_bytes)}"
    # Before the line, where there is room for it.
    anchor = "end" if width_of(words) <= limit else "start"
    drawing.words.append(Words(words, limit, TOP - 10, anchor))
    return drawing
