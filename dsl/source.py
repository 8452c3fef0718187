"""Text and places in it.

Positions are offsets in code points everywhere; only `Source` knows lines and columns.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """The half-open range `[start, end)` of code points in the file called `file`."""

    file: str
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The range from the start of this span to the end of `other` (same file)."""
        return Span(self.file, self.start, other.end)


class Position(NamedTuple):
    """A place as people count it: lines and columns from 1."""

    line: int
    column: int


class Source:
    """One file's text under the name that diagnostics print.

    `text` has had its byte-order mark taken off; `\\r\\n` is left as it stands, so that offsets
    are those of the file.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        starts.extend(i + 1 for i, character in enumerate(self.text) if character == "\n")
        return starts

    def position(self, offset: int) -> Position:
        """Line and column, from 1, of a code point; offsets past the end are at the end."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def start_of(self, number: int) -> int:
        """The offset at which line `number` (from 1) starts."""
        return self._line_starts[number - 1]

    def line(self, number: int) -> str:
        """The text of line `number` (from 1) without its line end."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    @property
    def lines(self) -> int:
        """How many lines the text has."""
        return len(self._line_starts)
