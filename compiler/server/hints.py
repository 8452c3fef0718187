"""What an editor shows between the words of a text: figures above it, what `auto` comes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from parlay.compiler.ledger.values import Value
from parlay.compiler.server.analysis import Analysis
from parlay.compiler.spec.resolve import Phase
from parlay.dsl import syntax
from parlay.dsl.source import Span
from parlay.dsl.units import Quantity, show

SHOWN: Final[Mapping[str, str]] = {
    "memory.peak": "peak {}",
    "time.step": "step {}",
    "throughput.mfu": "MFU {}",
    "throughput.tokens_per_gpu": "{} tokens/s/GPU",
    "run.days": "{} days",
}
"""Figures of the ledger, in the order shown, and the words around each."""
PLACES: Final = ("parallel", "train", "cluster", "model")
"""Where the figures of a file without phases stand: above the first of these blocks."""


def lenses(analysis: Analysis) -> Iterator[tuple[Span, str]]:
    """The ledger's figures of each phase, above it; none of a phase that has no ledger."""
    for phase in analysis.loaded.phases:
        place = _place(phase, analysis)
        words = _words(analysis.figures(phase)) if place is not None else ""
        if place is not None and words:
            yield place, words


def _place(phase: Phase, analysis: Analysis) -> Span | None:
    blocks = [each for each in analysis.tree.statements if isinstance(each, syntax.Block)]
    for each in blocks:
        label = each.label.value if isinstance(each.label, syntax.String) else None
        if each.keyword.text == "phase" and label == phase.name:
            return each.keyword.span
    if any(each.keyword.text == "phase" for each in blocks) and phase.name != "main":
        return None
    spans = {each.keyword.text: each.keyword.span for each in reversed(blocks)}
    return next((spans[name] for name in PLACES if name in spans), None)


def _words(figures: Mapping[str, Value]) -> str:
    found = {name: figures[name].quantity for name in SHOWN if name in figures}
    return " · ".join(
        SHOWN[name].format(_rounded(name, each)) for name, each in found.items() if each is not None
    )


def _rounded(name: str, found: Quantity) -> str:
    """Numbers that count something, without a fraction that nobody reads."""
    match name:
        case "run.days":
            return f"{float(found.value):.3g}"
        case "throughput.tokens_per_gpu":
            return f"{float(found.value):,.0f}"
    return show(found.value, found.dimension)


def hints(analysis: Analysis, start: int, end: int) -> Iterator[tuple[int, str]]:
    """Behind each `auto` from `start` to `end` the value that it has; open ones have none."""
    for path, phase_name, value in _autos(analysis.tree):
        if not start <= value.span.end <= end:
            continue
        phase = analysis.phase(phase_name)
        origin = phase.origins.get(path) if phase is not None and path not in phase.open else None
        if origin is not None and origin.shown not in ("", "auto", "absent"):
            yield value.span.end, f" = {origin.shown}"


def _autos(file: syntax.File) -> Iterator[tuple[str, str | None, syntax.Auto]]:
    """Fields that are `auto`: path, phase, value."""
    for each in file.statements:
        if isinstance(each, syntax.Block) and each.keyword.text != "target":
            label = each.label.value if isinstance(each.label, syntax.String) else None
            phase = label if each.keyword.text == "phase" else None
            yield from _in(each.body or (), "" if phase is not None else each.keyword.text, phase)


def _in(
    items: Iterable[syntax.Field | syntax.Block], path: str, phase: str | None
) -> Iterator[tuple[str, str | None, syntax.Auto]]:
    for item in items:
        name = item.keyword.text if isinstance(item, syntax.Block) else item.name.text
        below = f"{path}.{name}" if path else name
        if isinstance(item, syntax.Block):
            yield from _in(item.body or (), below, phase)
        elif isinstance(item.value, syntax.Auto):
            yield below, phase, item.value
