"""Where the time of a step goes: its parts one after the other, and what each is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parlay.compiler.ledger.time.efficiency import COMMUNICATION
from parlay.compiler.report.drawing import Box, Drawing, Stroke, Words, width_of
from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import seconds, share
from parlay.compiler.report.part import Part

NAMES: Final = {
    "gemm": "matrix products",
    "gemm_low": "products in 8 or 4 bits",
    "expert": "experts' products",
    "expert_low": "experts' products, 8 or 4 bits",
    "attention": "attention",
    "unfused": "unfused attention",
    "pointwise": "norms and activations",
    "quantise": "casts",
    "permute": "tokens to experts",
    "loss": "loss",
    "accumulate": "gradient sums",
    "launch": "kernel starts",
    "host": "waiting for the host",
    "optimizer": "optimizer",
    "tp": "waiting for tp",
    "cp": "waiting for cp",
    "ep": "waiting for ep",
    "pp": "waiting for pp",
    "dp": "waiting for dp",
    "straggle": "slowest rank",
}
WAITING: Final = ("launch", "host", "straggle")
LEFT, RIGHT, WIDTH = 230.0, 150.0, 1000.0
ROW, BAR, TOP = 20.0, 14.0, 6.0
WORDS: Final = {
    "compute": "computing",
    "wire": "waiting for messages",
    "wait": "starts, stragglers",
}


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One part of the step."""

    name: str
    words: str
    kind: str
    took: Figure | None
    of_step: Figure | None
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class WaterfallSection:
    """`rows` sum to `step`; computing and what is waited for are told beside it."""

    drawing: Drawing
    rows: tuple[ShareRow, ...]
    step: Figure | None
    compute: Figure | None
    exposed: Figure | None
    kinds: tuple[tuple[str, str], ...]


def waterfall_section(part: Part) -> WaterfallSection | None:
    """The parts of the step: computing, then messages, then waiting, the largest of each first."""
    time, figures = part.book.time, part.ledger
    if time is None:
        return None
    order = ("compute", "wire", "wait")
    shares = sorted(time.shares, key=lambda each: (order.index(_kind(each.name)), -each.seconds))
    rows = tuple(
        ShareRow(
            each.name,
            NAMES.get(each.name, each.name),
            _kind(each.name),
            figures.figure(f"time.shares.{each.name}", seconds),
            figures.combined("share", f"time.shares.{each.name}", "time.step_seconds", share),
            each.formula,
            each.source,
        )
        for each in shares
    )
    kinds = dict.fromkeys(row.kind for row in rows)
    return WaterfallSection(
        _drawing(rows, time.step_seconds),
        rows,
        figures.figure("time.step_seconds", seconds),
        figures.figure("time.compute_seconds", seconds),
        figures.figure("time.exposed_communication_seconds", seconds),
        tuple((f"w-{kind}", WORDS[kind]) for kind in kinds),
    )


def _kind(name: str) -> str:
    if name in COMMUNICATION:
        return "wire"
    return "wait" if name in WAITING else "compute"


def _drawing(rows: tuple[ShareRow, ...], step: float) -> Drawing:
    scale = (WIDTH - LEFT - RIGHT) / step
    height = TOP + ROW * (len(rows) + 1) + 4
    drawing = Drawing(
        "waterfall",
        "The parts of a step, one after the other",
        "Every bar begins where the one above it ends; the last is the whole step. "
        "The table below has the figures.",
        WIDTH,
        height,
    )
    at = LEFT
    for number, row in enumerate(rows):
        assert row.took is not None and row.of_step is not None
        top = TOP + ROW * number
        wide = row.took.value * scale
        drawing.words.append(Words(row.words, LEFT - 8, top + BAR - 3, "end"))
        drawing.boxes.append(Box(f"w-{row.kind}", at, top, wide, BAR))
        words = f"{row.took.shown}, {row.of_step.shown}"
        after = at + wide + 6
        # Beside the bar where there is room behind it, else before it.
        behind = after + width_of(words) <= WIDTH
        drawing.words.append(
            Words(words, after if behind else at - 6, top + BAR - 3, "start" if behind else "end")
        )
        at += wide
        if number + 1 < len(rows):
            drawing.strokes.append(Stroke("join", at, top + BAR, at, top + ROW))
    top = TOP + ROW * len(rows)
    drawing.words.append(Words("the step", LEFT - 8, top + BAR - 3, "end", "strong"))
    drawing.boxes.append(Box("w-step", LEFT, top, step * scale, BAR))
    drawing.words.append(
        Words(seconds(step), LEFT + step * scale + 6, top + BAR - 3, "start", "strong")
    )
    return drawing
