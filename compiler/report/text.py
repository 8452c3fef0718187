"""The text of the job, marked by the tokens that the language itself reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from parlay.dsl.source import Source
from parlay.dsl.tokens import KEYWORDS, tokenize

MOST: Final = 40_000
"""Characters of a file that are shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One file: its lines as pieces of (class, text); `cut` says that more follow."""

    name: str
    number: int
    lines: tuple[tuple[tuple[str, str], ...], ...]
    cut: bool


def shown(source: Source, number: int) -> Shown:
    """`source` as the page shows it; it is file `number` of the job."""
    text = source.text
    whole = len(text) <= MOST
    if not whole:
        text = text[: text.rfind("\n", 0, MOST) + 1] or text[:MOST]
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, piece in _pieces(Source(source.name, text)):
        first, *more = piece.replace("\r\n", "\n").split("\n")
        for at, part in enumerate((first, *more)):
            if at:
                lines.append([])
            if part:
                lines[-1].append((kind, part))
    if not lines[-1] and len(lines) > 1:
        lines.pop()
    return Shown(source.name, number, tuple(map(tuple, lines)), not whole)


def _pieces(source: Source) -> Iterator[tuple[str, str]]:
    """The whole text in order, each piece with its class, empty for what is no token."""
    text, found = source.text, tokenize(source)
    marks = [(comment.span.start, comment.span.end, "t-comment") for comment in found.comments]
    tokens = found.tokens
    for token, after in pairwise(tokens):
        kind = _kind(token.kind, after.kind)
        if kind:
            marks.append((token.start, token.end, kind))
    at = 0
    for start, end, kind in sorted(marks):
        if start > at:
            yield "", text[at:start]
        yield kind, text[start:end]
        at = end
    yield "", text[at:]


def _kind(kind: str, after: str) -> str:
    """The class of a token: keywords, strings, numbers, and names by what follows them."""
    if kind in KEYWORDS:
        return "t-keyword"
    if kind in ("string", "number"):
        return f"t-{kind}"
    if kind == "name":
        return {"{": "t-block", "=": "t-field", "from": "t-block", "string": "t-block"}.get(
            after, ""
        )
    return ""
