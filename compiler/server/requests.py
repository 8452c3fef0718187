"""What an editor asks of a text, and the answers as the protocol writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.commands.fmt import formatted
from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.answers import Writer, completion
from parlay.compiler.server.complete import complete
from parlay.compiler.server.define import define
from parlay.compiler.server.hints import hints, lenses
from parlay.compiler.server.hover import hover
from parlay.compiler.server.outline import Entry, folds, links, outline
from parlay.dsl.source import Span

Json = dict[str, Any]
FIX_ALL: Final = "source.fixAll.parlay"

CAPABILITIES: Final[Json] = {
    "textDocumentSync": {"openClose": True, "change": 2, "save": True},
    "hoverProvider": True,
    "completionProvider": {"triggerCharacters": [".", "=", '"', "(", "["]},
    "definitionProvider": True,
    "documentFormattingProvider": True,
    "documentSymbolProvider": True,
    "foldingRangeProvider": True,
    "documentLinkProvider": {},
    "codeLensProvider": {},
    "inlayHintProvider": True,
    "codeActionProvider": {"codeActionKinds": ["quickfix", FIX_ALL]},
}


@dataclass(frozen=True, slots=True)
class Client:
    """What the editor at the other end can do, and which back ends it asks for."""

    wide: bool = True
    snippets: bool = False
    nested: bool = False
    targets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of one open text."""

    analysis: Analysis
    writer: Writer
    uri: str
    client: Client
    params: Json

    @property
    def offset(self) -> int:
        """The place asked about."""
        return self.writer.positions(self.analysis.name).offset(self.params["position"])

    @property
    def whole(self) -> Json:
        """The range of all the text."""
        return self.writer.range(Span(self.analysis.name, 0, len(self.analysis.text)))

    def between(self) -> tuple[int, int]:
        """The range asked about."""
        positions = self.writer.positions(self.analysis.name)
        asked = self.params["range"]
        return positions.offset(asked["start"]), positions.offset(asked["end"])


# ── A place ───────────────────────────────────────────────────────────────────


def _hover(asked: Asked) -> Json | None:
    found = hover(asked.analysis, asked.offset)
    if found is None:
        return None
    text, span = found
    return {"contents": {"kind": "markdown", "value": text}, "range": asked.writer.range(span)}


def _complete(asked: Asked) -> Json:
    offset = asked.offset
    items, start = complete(asked.analysis, offset)
    place = asked.writer.range(Span(asked.analysis.name, start, offset))
    return completion(items, place, snippets=asked.client.snippets)


def _define(asked: Asked) -> Json | None:
    found = define(asked.analysis, asked.offset)
    return None if found is None else asked.writer.location(found[1])


# ── The text ──────────────────────────────────────────────────────────────────


def _format(asked: Asked) -> list[Json]:
    """One edit of the whole text; none for a text with errors of its syntax."""
    source = asked.analysis.source
    after, _ = formatted(source)
    if after is None or after == source.text:
        return []
    return [{"range": asked.whole, "newText": after}]


def _actions(asked: Asked) -> list[Json]:
    start, end = asked.between()
    only = (asked.params.get("context") or {}).get("only")
    found: list[Json] = []
    if only is None or any("quickfix".startswith(str(kind)) for kind in only):
        told = asked.analysis.job.diagnostics
        found += asked.writer.actions(told, asked.uri, start, end)
    if only is not None and any(FIX_ALL.startswith(str(kind)) for kind in only):
        found += _fix_all(asked)
    return found


def _fix_all(asked: Asked) -> list[Json]:
    """What `parlay check --fix` would do, as one edit of the text."""
    from parlay.compiler.commands.fix import fixed

    analysis = asked.analysis
    found = fixed(analysis.path, asked.client.targets, analysis.texts)
    if found.after == found.before:
        return []
    changes = {asked.uri: [{"range": asked.whole, "newText": found.after}]}
    return [{"title": "Apply every fix", "kind": FIX_ALL, "edit": {"changes": changes}}]


def _symbols(asked: Asked) -> list[Json]:
    """The outline; one list for an editor that takes no tree."""

    def tree(entry: Entry) -> Json:
        return {
            "name": entry.name or "…",
            "detail": entry.detail,
            "kind": entry.kind,
            "range": asked.writer.range(entry.span),
            "selectionRange": asked.writer.range(entry.name_span),
            "children": [tree(each) for each in entry.below],
        }

    def flat(entry: Entry, inside: str) -> list[Json]:
        within = {"containerName": inside} if inside else {}
        location = asked.writer.location(entry.span)
        own = {"name": entry.name or "…", "kind": entry.kind, "location": location, **within}
        return [own, *(found for each in entry.below for found in flat(each, entry.name))]

    entries = outline(asked.analysis)
    if asked.client.nested:
        return [tree(each) for each in entries]
    return [found for each in entries for found in flat(each, "")]


def _folds(asked: Asked) -> list[Json]:
    return [
        {"startLine": first, "endLine": last, "kind": kind}
        for first, last, kind in folds(asked.analysis)
    ]


def _links(asked: Asked) -> list[Json]:
    return [
        {"range": asked.writer.range(span), "target": asked.writer.uri(str(path))}
        for span, path in links(asked.analysis)
    ]


# ── Between its words ─────────────────────────────────────────────────────────


def _lenses(asked: Asked) -> list[Json]:
    return [
        {"range": asked.writer.range(span), "command": {"title": words, "command": ""}}
        for span, words in lenses(asked.analysis)
    ]


def _hints(asked: Asked) -> list[Json]:
    positions = asked.writer.positions(asked.analysis.name)
    return [
        {"position": positions.position(offset), "label": label}
        for offset, label in hints(asked.analysis, *asked.between())
    ]


REQUESTS: Final[dict[str, Callable[[Asked], Any]]] = {
    "textDocument/hover": _hover,
    "textDocument/completion": _complete,
    "textDocument/definition": _define,
    "textDocument/formatting": _format,
    "textDocument/codeAction": _actions,
    "textDocument/documentSymbol": _symbols,
    "textDocument/foldingRange": _folds,
    "textDocument/documentLink": _links,
    "textDocument/codeLens": _lenses,
    "textDocument/inlayHint": _hints,
}
"""Method of the protocol -> what answers it."""
