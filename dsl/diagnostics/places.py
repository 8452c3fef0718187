"""Places as other tools count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from parlay.dsl.source import Source, Span


class Region(NamedTuple):
    """Lines and columns from 1, in code points; the end column is the one after the last."""

    line: int
    column: int
    end_line: int
    end_column: int


def region(span: Span | None, sources: Mapping[str, Source]) -> Region | None:
    """Where `span` lies; None without a span or without its text."""
    source = sources.get(span.file) if span is not None else None
    if span is None or source is None:
        return None
    start, end = source.position(span.start), source.position(span.end)
    return Region(start.line, start.column, end.line, end.column)


def well_formed(text: str) -> str:
    """`text` as UTF-8 can hold it: halves of surrogate pairs (odd file names) become `?`."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
