"""What the server says, as the protocol writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from parlay.compiler.server.buffers import Buffers, Positions
from parlay.compiler.server.complete import Item
from parlay.dsl.diagnostics import Diagnostic, Fix, Severity
from parlay.dsl.diagnostics.order import in_order
from parlay.dsl.source import Source, Span

Json = dict[str, Any]

SEVERITIES: Final = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.NOTE: 3}


class Writer:
    """Writes places of several texts: `sources` by the names that spans have."""

    def __init__(self, sources: Mapping[str, Source], buffers: Buffers, *, wide: bool) -> None:
        self._sources = sources
        self._buffers = buffers
        self._wide = wide

    def uri(self, name: str) -> str:
        """The URI of a file by its name."""
        return self._buffers.uri(name)

    def positions(self, name: str) -> Positions:
        """The places of one text; of an unread one all are its start."""
        return Positions(self._sources.get(name) or Source(name, ""), self._wide)

    def range(self, span: Span) -> Json:
        """A span as a range."""
        return self.positions(span.file).range(span)

    def location(self, span: Span) -> Json:
        """A span with its file."""
        return {"uri": self.uri(span.file), "range": self.range(span)}

    # ── Diagnostics ───────────────────────────────────────────────────────────

    def diagnostics(self, told: Iterable[Diagnostic]) -> dict[str, list[Json]]:
        """Every diagnostic under the URI of its file."""
        found: dict[str, list[Json]] = {}
        for one in in_order(told):
            found.setdefault(self.uri(one.file), []).append(self._diagnostic(one))
        return found

    def _diagnostic(self, one: Diagnostic) -> Json:
        nowhere = Span(one.file, 0, 0)
        parts = [one.message]
        if one.labels and one.labels[0].text:
            parts.append(one.labels[0].text)
        parts += [f"note: {text}" for text in one.notes]
        parts += [f"help: {text}" for text in one.help]
        return {
            "range": self.range(one.span or nowhere),
            "severity": SEVERITIES[one.severity],
            "code": one.code,
            "source": "parlay",
            "message": "\n".join(parts),
            "relatedInformation": [
                {"location": self.location(label.span), "message": label.text}
                for label in one.labels[1:]
            ],
        }

    # ── Quick fixes ───────────────────────────────────────────────────────────

    def actions(self, told: Iterable[Diagnostic], uri: str, start: int, end: int) -> list[Json]:
        """The fixes of the diagnostics that touch a range of the text at `uri`, in order."""
        return list(self._actions(told, uri, start, end))

    def _actions(
        self, told: Iterable[Diagnostic], uri: str, start: int, end: int
    ) -> Iterator[Json]:
        for one in in_order(told):
            span = one.span
            if span is None or self.uri(one.file) != uri or span.start > end or span.end < start:
                continue
            for number, fix in enumerate(one.fixes):
                yield {
                    "title": f"{one.code}: {fix.title}",
                    "kind": "quickfix",
                    "diagnostics": [self._diagnostic(one)],
                    "isPreferred": number == 0,
                    "edit": self.edit(fix),
                }

    def edit(self, fix: Fix) -> Json:
        """A fix as an edit of one or several files."""
        changes: dict[str, list[Json]] = {}
        for edit in dict.fromkeys(fix.edits):
            place = {"range": self.range(edit.span), "newText": edit.text}
            changes.setdefault(self.uri(edit.span.file), []).append(place)
        return {"changes": changes}


def completion(items: Iterable[Item], place: Json, *, snippets: bool) -> Json:
    """Offers that take the place of `place`, in the order given."""
    written = []
    for number, item in enumerate(items):
        snippet = snippets and "$0" in item.insert
        text = item.insert if snippet else item.label
        written.append(
            {
                "label": item.label,
                "kind": item.kind,
                "sortText": f"{number:04}",
                "insertTextFormat": 2 if snippet else 1,
                "textEdit": {"range": place, "newText": text},
                **({"detail": item.detail} if item.detail else {}),
                **({"documentation": {"kind": "markdown", "value": item.doc}} if item.doc else {}),
            }
        )
    return {"isIncomplete": False, "items": written}
