"""Where the figures of a page come from: presets, the table of efficiencies, papers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parlay.compiler import catalog
from parlay.compiler.report.part import Part, Subject
from parlay.compiler.report.waterfall import NAMES
from parlay.compiler.spec.origins import Kind

BLOCKS = (("model", "model"), ("cluster.node.gpu", "gpu"), ("cluster.node", "node"))


@dataclass(frozen=True, slots=True)
class SourceRow:
    """What is said where."""

    what: str
    source: str


def sources(subject: Subject) -> tuple[SourceRow, ...]:
    """The sources of all phases, each told once."""
    return tuple(dict.fromkeys(row for part in subject.parts for row in _sources(part)))


def preset_of(part: Part, block: str) -> str:
    """The preset that a block's fields come from; empty where it has none of its own."""
    for path, origin in part.phase.origins.fields.items():
        if origin.kind is Kind.PRESET and path.rpartition(".")[0] == block:
            return origin.words
    return ""


def _sources(part: Part) -> Iterator[SourceRow]:
    for block, kind in BLOCKS:
        name = preset_of(part, block)
        found = catalog.load(kind, name) if name else None
        if found is not None:
            yield SourceRow(f"{kind} {name}", found.source)
        elif name:
            yield SourceRow(f"{kind} {name}", "the file that it is read from")
    yield SourceRow("groups and places", "closed forms of the grid of ranks (parlay layout)")
    by_source: dict[str, list[str]] = {}
    for each in part.book.memory.classes:
        for line in each.peak.lines:
            names = by_source.setdefault(line.source, [])
            if line.category not in names:
                names.append(line.category)
    for source, names in by_source.items():
        if source:
            yield SourceRow(f"memory: {', '.join(names)}", source)
    if part.book.time is not None:
        parts: dict[str, list[str]] = {}
        for share in part.book.time.shares:
            parts.setdefault(share.source, []).append(NAMES.get(share.name, share.name))
        for source, names in parts.items():
            yield SourceRow(f"time: {', '.join(names)}", source)
    messages: dict[str, list[str]] = {}
    for message, call in zip(part.book.communication, part.book.calls, strict=False):
        names = messages.setdefault(call.source, [])
        if message.group not in names:
            names.append(message.group)
    for source, names in messages.items():
        yield SourceRow(f"messages: {', '.join(names)}", source)
