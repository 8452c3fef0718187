"""What a text is made of, for an editor: its outline, what folds, where strings lead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.spots import What, spots
from parlay.dsl import syntax
from parlay.dsl.source import Span


class Kind(IntEnum):
    """What a thing is, by the protocol's numbers of symbols."""

    MODULE = 2
    NAMESPACE = 3
    CLASS = 5
    PROPERTY = 7
    VARIABLE = 13
    CONSTANT = 14


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing of the outline: `span` is all of it, `name_span` the word to go to."""

    name: str
    detail: str
    kind: Kind
    span: Span
    name_span: Span
    below: tuple[Entry, ...] = ()


# ── The outline ───────────────────────────────────────────────────────────────


def outline(analysis: Analysis) -> list[Entry]:
    """The statements of a text, blocks with what is in them."""
    return [entry for each in analysis.tree.statements for entry in _entry(each, analysis)]


def _entry(
    each: syntax.Statement | syntax.Field | syntax.Block, analysis: Analysis
) -> Iterator[Entry]:
    match each:
        case syntax.Import():
            yield Entry(each.path.value, "import", Kind.MODULE, each.span, each.path.span)
        case syntax.Let():
            detail = _text(each.value.span, analysis)
            yield Entry(each.name.text, detail, Kind.VARIABLE, each.span, each.name.span)
        case syntax.Assert():
            words = _text(each.span, analysis)
            yield Entry(words, "", Kind.CONSTANT, each.span, each.left.span)
        case syntax.Field():
            detail = _text(each.value.span, analysis)
            yield Entry(each.name.text, detail, Kind.PROPERTY, each.span, each.name.span)
        case syntax.Block():
            label = each.label
            named = label.value if isinstance(label, syntax.String) else label and label.text
            name = f"{each.keyword.text} {named}" if named else each.keyword.text
            detail = f"from {each.preset.value}" if each.preset is not None else ""
            below = tuple(found for item in each.body or () for found in _entry(item, analysis))
            kind = Kind.NAMESPACE if each.keyword.text == "phase" else Kind.CLASS
            yield Entry(name, detail, kind, each.span, each.keyword.span, below)


def _text(span: Span, analysis: Analysis) -> str:
    words = " ".join(analysis.text[span.start : span.end].split())
    return words if len(words) <= 80 else f"{words[:79]}…"


# ── What folds ────────────────────────────────────────────────────────────────


def folds(analysis: Analysis) -> list[tuple[int, int, str]]:
    """First and last line, counted from 0, and the kind: blocks, lists, runs of comments."""
    source = analysis.source
    found = []
    for each in _foldable(outline(analysis)):
        last = source.position(each.end).line - 1
        # A brace that closes on a line of its own stays in sight.
        alone = source.line(last + 1).strip() in ("}", "]", ")")
        found.append((source.position(each.start).line - 1, last - alone, "region"))
    run: list[int] = []
    for number in range(source.lines + 1):
        if number < source.lines and source.line(number + 1).lstrip().startswith("#"):
            run.append(number)
            continue
        found += [(run[0], run[-1], "comment")] if run else []
        run = []
    return sorted({fold for fold in found if fold[0] < fold[1]})


def _foldable(entries: list[Entry] | tuple[Entry, ...]) -> Iterator[Span]:
    for each in entries:
        yield each.span
        yield from _foldable(each.below)


# ── Where strings lead ────────────────────────────────────────────────────────


def links(analysis: Analysis) -> list[tuple[Span, Path]]:
    """The strings that name a file beside the text, imports and presets of files."""
    found = []
    for each in spots(analysis.tree):
        of_file = each.what is What.PRESET and each.text.endswith(".json")
        if (each.what is not What.IMPORT and not of_file) or "\0" in each.text:
            continue
        path = analysis.path.parent / each.text
        try:
            there = path.is_file()
        except OSError:
            continue
        if there:
            found.append((each.span, path))
    return found
