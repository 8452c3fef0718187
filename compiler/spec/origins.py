"""Where every value of a spec came from: the file, a preset, a default or a derivation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from parlay.compiler.spec.schema import Open
from parlay.dsl.source import Span


class Kind(StrEnum):
    """How a value came about."""

    FILE = "file"
    PRESET = "preset"
    DEFAULT = "default"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class Origin:
    """One value's origin.

    `span` is the value's place; for a preset's value the `from` string, for defaults and
    derivations the keyword of the nearest block that is there (else the file's start). `words`
    name the preset, or say how the value was derived; `shown` is the value as people read it.
    `text` is the number as it is written, at `literal`: in the field itself or in a `let` that it
    names; both are empty for anything that is computed. `restricted` is what `auto in […]` or
    `auto <= N` leaves.
    """

    kind: Kind
    span: Span
    words: str = ""
    shown: str = ""
    text: str = ""
    literal: Span | None = None
    restricted: Open | None = None


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins by field path (`parallel.tp`), and the places of the blocks (`parallel`)."""

    fields: Mapping[str, Origin]
    blocks: Mapping[str, Span]
    start: Span
    allowed: Mapping[str, tuple[Span, str]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    """The fields whose values are in error: None in the spec."""

    def __getitem__(self, path: str) -> Origin:
        return self.fields[path]

    def get(self, path: str) -> Origin | None:
        """The origin of a field, None where the spec has no such value."""
        return self.fields.get(path)

    def kind(self, path: str) -> Kind:
        """How the value at `path` came about; DEFAULT where nothing is known of it."""
        origin = self.fields.get(path)
        return origin.kind if origin else Kind.DEFAULT

    def span(self, path: str) -> Span:
        """The place to point at for the value at `path`."""
        origin = self.fields.get(path)
        return origin.span if origin else self.block(path.rpartition(".")[0])

    def block(self, path: str) -> Span:
        """The keyword of a block, or of the nearest one around it, else the file's start."""
        while path:
            if path in self.blocks:
                return self.blocks[path]
            path = path.rpartition(".")[0]
        return self.start

    def label(self, path: str, words: str) -> tuple[Span, str]:
        """The place of a value with `words` under it, and its origin if it is not written there."""
        origin = self.fields.get(path)
        if origin is None:
            return self.span(path), words
        name = path.rpartition(".")[2]
        match origin.kind:
            case Kind.FILE:
                return origin.span, words
            case Kind.PRESET:
                return origin.span, f"{words} ({origin.words}: {name} = {origin.shown})"
            case Kind.DEFAULT:
                return origin.span, f"{words} (default: {name} = {origin.shown})"
            case Kind.DERIVED:
                return origin.span, f"{words} ({name} = {origin.words} = {origin.shown})"
