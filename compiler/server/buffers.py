"""Open texts, and places in them as editors count: lines from 0, UTF-16 units or code points."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from parlay.dsl.source import Source, Span


@dataclass(frozen=True, slots=True)
class Positions:
    """Turns offsets of one text into positions and back; `wide` where UTF-16 units are counted."""

    source: Source
    wide: bool

    def position(self, offset: int) -> dict[str, int]:
        """The position of a code point."""
        at = self.source.position(offset)
        text = self.source.text[max(0, min(offset, len(self.source.text))) - at.column + 1 :]
        return {"line": at.line - 1, "character": self._units(text[: at.column - 1])}

    def range(self, span: Span) -> dict[str, Any]:
        """The range of a span."""
        return {"start": self.position(span.start), "end": self.position(span.end)}

    def offset(self, position: Any) -> int:
        """The code point at a position; one past a line's end is that end, as the protocol says."""
        line, units = _whole(position, "line"), _whole(position, "character")
        if line >= self.source.lines:
            return len(self.source.text)
        text = self.source.line(line + 1)
        start = self.source.start_of(line + 1)
        if not self.wide:
            return start + min(units, len(text))
        for index, character in enumerate(text):
            if units <= 0:
                return start + index
            units -= 2 if ord(character) > 0xFFFF else 1
        return start + len(text)

    def _units(self, text: str) -> int:
        return len(text) + sum(ord(c) > 0xFFFF for c in text) if self.wide else len(text)


def _whole(value: Any, name: str) -> int:
    number = value[name]
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{name} is no position")
    return number


@dataclass(slots=True)
class Buffer:
    """One open text under the URI that the editor has for it."""

    uri: str
    path: Path
    text: str
    version: int | None = None

    def change(self, changes: Sequence[Any], *, wide: bool) -> None:
        """Applies the changes of the protocol in their order: of a range, or the whole text."""
        for change in changes:
            new = str(change["text"])
            place = change.get("range")
            if place is None:
                self.text = new
                continue
            at = Positions(Source("", self.text), wide)
            start, end = at.offset(place["start"]), at.offset(place["end"])
            self.text = self.text[:start] + new + self.text[max(start, end) :]


@dataclass(slots=True)
class Buffers:
    """The open texts by their resolved paths."""

    open: dict[Path, Buffer] = field(default_factory=dict)

    def texts(self) -> dict[Path, str]:
        """What stands in place of files."""
        return {path: buffer.text for path, buffer in self.open.items()}

    def of(self, uri: str) -> Buffer | None:
        """The open text of a URI."""
        return self.open.get(resolved(uri))

    def uri(self, name: str) -> str:
        """The URI of a file by the name that diagnostics have for it: the editor's own if open."""
        path = Path(os.path.realpath(name))
        buffer = self.open.get(path)
        return buffer.uri if buffer is not None else path.as_uri()


def path_of(uri: str) -> Path:
    """The path of a URI; a text that was never saved gets a name in the current folder."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme != "file":
        name = path.rpartition("/")[2].replace("\0", "") or "untitled"
        return Path.cwd() / name
    if os.name == "nt":
        path = path.lstrip("/")
    return Path(path.replace("\0", ""))


def resolved(uri: str) -> Path:
    """The path of a URI with its links followed."""
    return Path(os.path.realpath(path_of(uri)))
