"""Numbers as they are written: what a unit slip is read from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.origins import Kind
from parlay.dsl.diagnostics import Edit, Fix
from parlay.dsl.source import Span

_TOKEN = re.compile(r"([0-9][0-9_.]*(?:[eE][+-]?[0-9]+)?)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Literal:
    """One number of the file: `400GB/s` has `number` 400 and `unit` `GB/s`."""

    text: str
    number: Fraction
    unit: str
    span: Span

    def with_unit(self, unit: str) -> str:
        """The same digits before another unit."""
        return self.text.removesuffix(self.unit) + unit


def written(subject: Subject, path: str) -> Literal | None:
    """The number that the file gives a field, itself or by a `let`; None for all other values.

    None while other layouts are tried too: their values are not the file's.
    """
    origin = subject.origins.get(path)
    if subject.searching or origin is None or origin.kind is not Kind.FILE:
        return None
    parts = _TOKEN.fullmatch(origin.text)
    if parts is None or origin.literal is None:
        return None
    digits, unit = parts.groups()
    return Literal(origin.text, Fraction(digits.replace("_", "")), unit, origin.literal)


def replaced(subject: Subject, literal: Literal, texts: Iterable[str]) -> tuple[Fix, ...]:
    """One fix for each of `texts` in the place of the number."""
    if not subject.editable:
        return ()
    return tuple(Fix(f"write `{text}`", (Edit(literal.span, text),)) for text in texts)
