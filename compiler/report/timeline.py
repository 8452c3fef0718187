"""One step of the pipeline as a drawing, from the action list that the ranks run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any, Final

from parlay.compiler.layout import Layout
from parlay.compiler.layout.stages import chunks_of
from parlay.compiler.ledger.time.trace import KINDS, MICROSECONDS, trace
from parlay.compiler.report.drawing import Drawing, Stroke, Trail, Words, px, width_of
from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import count, runs, seconds, share
from parlay.compiler.report.part import Part
from parlay.compiler.spec.blocks import Spec

ACTIONS: Final = 64
"""About how many actions of one rank can be told apart at full width."""
BLOCKS: Final = 1300
NAMES: Final = 96
"""Numbers of microbatches up to which all rows have them; beyond, every second, third, … row."""
NAME: Final = 9.0 * 0.62
"""Width of a digit in them."""
RANKS: Final = 16
LEFT, RIGHT, WIDTH = 74.0, 24.0, 1000.0
ROW, BAR, TOP = 20.0, 16.0, 6.0
GAP: Final = 0.5
ONCE: Final = {
    "dp": "gradients and weights over dp",
    "optimizer": "the optimizer's update",
    "straggle": "waiting for the slowest rank",
}
CLASSES: Final = {"F": "a-forward", "B": "a-backward", "I": "a-input", "W": "a-weight"}


@dataclass(frozen=True, slots=True)
class TimelineSection:
    """`drawing` is None where there is no pipeline; `cuts` say what it leaves out."""

    drawing: Drawing | None
    schedule: str
    microbatches: Figure | None
    bubble: Figure | None
    legend: tuple[tuple[str, str, str], ...]
    cuts: tuple[str, ...]


Drawn = tuple[Drawing, tuple[tuple[str, str, str], ...], list[str]]


@dataclass(frozen=True, slots=True)
class Block:
    """One slice of the trace on one row, in seconds."""

    kind: str
    name: str
    row: int
    start: float
    took: float


def timeline_section(part: Part) -> TimelineSection | None:
    """The predicted step; None where no step is priced."""
    parallel, book = part.phase.spec.parallel, part.book
    if book.time is None or book.pipeline is None:
        return None
    drawing, legend, cuts = None, tuple[tuple[str, str, str], ...](), list[str]()
    if parallel.pp > 1:
        drawing, legend, cuts = drawn(part.phase.spec, part.layout)
    return TimelineSection(
        drawing,
        parallel.schedule.name,
        part.ledger.figure("pipeline.microbatches", count),
        part.ledger.figure("pipeline.bubble", share),
        legend,
        tuple(cuts),
    )


def drawn(spec: Spec, layout: Layout) -> Drawn:
    """The step of a priced job with a pipeline: the drawing, what its blocks are, what is cut."""
    ranks, schedule = spec.parallel.pp, spec.parallel.schedule
    made = trace(spec, layout, most=max(1, ACTIONS // (2 * chunks_of(schedule))))
    shown, left_out = _rows(ranks)
    about = made["otherData"]
    whole = about["microbatches_shown"] == about["microbatches"]
    blocks, late = _blocks(made["traceEvents"], shown, whole=whole)
    cuts = []
    if not whole:
        cuts.append(
            f"Shown are {about['microbatches_shown']:,} of {about['microbatches']:,} microbatches: "
            "the others go on as those in the middle. What comes once a step is left out."
        )
    if left_out:
        cuts.append(f"Ranks {runs(left_out)} are left out.")
    if late:
        cuts.append("The end of the step is left out.")
    drawing = Drawing(
        "timeline",
        "The pipeline's ranks over one step",
        f"A row for each of {len(shown)} pipeline ranks, time to the right; every block is one "
        "microbatch through one stage.",
        WIDTH,
        TOP + ROW * len(shown) + 26,
    )
    end = max(block.start + block.took for block in blocks)
    scale = (WIDTH - LEFT - RIGHT) / end
    for row, rank in enumerate(shown):
        drawing.words.append(Words(f"rank {rank}", LEFT - 8, TOP + ROW * row + BAR - 4, "end"))
    for kind in dict.fromkeys(block.kind for block in blocks):
        drawing.trails.append(Trail(kind, _path([b for b in blocks if b.kind == kind], scale)))
    drawing.words += _names(blocks, scale)
    _axis(drawing, end, scale, len(shown))
    kinds = dict.fromkeys(block.kind for block in blocks)
    return drawing, tuple(each for each in _legend() if each[0] in kinds), cuts


def _rows(ranks: int) -> tuple[list[int], list[int]]:
    """The pipeline ranks that are drawn, and those that are not: the ends are."""
    if ranks <= RANKS:
        return list(range(ranks)), []
    half = RANKS // 2
    return [*range(half), *range(ranks - half, ranks)], list(range(half, ranks - half))


def _blocks(
    events: Sequence[Mapping[str, Any]], shown: Sequence[int], *, whole: bool
) -> tuple[list[Block], bool]:
    """The slices of the shown ranks, the earliest `BLOCKS` of them; whether some were cut.

    What comes once a step, in proportion to all of it, is drawn behind a `whole` one alone.
    """
    row_of = {rank: row for row, rank in enumerate(shown)}
    found = []
    letters = {words: CLASSES[letter] for letter, words in KINDS.items()}
    for event in events:
        if event["ph"] != "X" or event["tid"] not in row_of or not event["dur"]:
            continue
        once = event["name"] in ONCE
        if once and not whole:
            continue
        kind = f"a-{event['name']}" if once else letters[event["cat"]]
        name = "" if once else str(event["args"]["microbatch"])
        start, took = event["ts"] / MICROSECONDS, event["dur"] / MICROSECONDS
        found.append(Block(kind, name, row_of[event["tid"]], start, took))
    found.sort(key=lambda block: (block.start, block.row))
    if len(found) <= BLOCKS:
        return found, False
    until = found[BLOCKS].start
    cut = [block for block in found if block.start + block.took <= until]
    return cut, True


def _path(blocks: Sequence[Block], scale: float) -> str:
    """A stroke for each block, from row to row, the smallest gap between two of them left free."""
    pieces = []
    for row in sorted({block.row for block in blocks}):
        at = 0.0
        for block in (block for block in blocks if block.row == row):
            left = round(LEFT + block.start * scale, 1)
            right = round(LEFT + (block.start + block.took) * scale - GAP, 1)
            # Rounded, neighbours end where they begin; what has no width is drawn as a hair.
            wide = max(0.1, right - left)
            move = f"m{px(left - at)} 0" if at else f"M{px(left)} {px(TOP + ROW * row + BAR / 2)}"
            pieces.append(f"{move}h{px(wide)}")
            at = left + round(wide, 1)
    return "".join(pieces)


def _names(blocks: Sequence[Block], scale: float) -> Iterator[Words]:
    """The microbatch's number in the blocks that have room for it."""
    named = [b for b in blocks if b.name and len(b.name) * NAME + 1 <= b.took * scale]
    every = ceil(len(named) / NAMES)
    for block in named:
        if block.row % every == 0:
            middle = LEFT + (block.start + block.took / 2) * scale
            foot = TOP + ROW * block.row + BAR - 5
            yield Words(block.name, middle, foot, "middle", "small")


def _axis(drawing: Drawing, end: float, scale: float, rows: int) -> None:
    """Ticks of 1, 2 or 5 below the rows, at most eight of them."""
    foot = TOP + ROW * rows + 2
    drawing.strokes.append(Stroke("axis", LEFT, foot, WIDTH - RIGHT, foot))
    size = 10.0 ** floor(log10(end / 8))
    step = next(size * times for times in (1, 2, 5, 10) if size * times * 8 >= end)
    last = -1e9
    for number in range(ceil(end / step) + 1):
        x = LEFT + number * step * scale
        text = seconds(number * step) if number else "0"
        if x > WIDTH - RIGHT:
            break
        drawing.strokes.append(Stroke("axis", x, foot, x, foot + 4))
        half = width_of(text) / 2
        if x - half > last and x + half <= WIDTH:
            drawing.words.append(Words(text, x, foot + 17, "middle"))
            last = x + half + 4


def _legend() -> Iterator[tuple[str, str, str]]:
    """Class, letter and words of every kind of block."""
    for letter, words in KINDS.items():
        yield CLASSES[letter], letter, words
    for name, words in ONCE.items():
        yield f"a-{name}", "", words
