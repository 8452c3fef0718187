"""One editor's session: messages in, messages out, diagnostics after every change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from parlay.compiler.commands.fmt import formatted
from parlay.compiler.server import rpc
from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.answers import Writer, completion
from parlay.compiler.server.buffers import Buffer, Buffers, resolved
from parlay.compiler.server.complete import complete
from parlay.compiler.server.define import define
from parlay.compiler.server.hover import hover
from parlay.dsl.source import Span

Json = dict[str, Any]
Send = Callable[[Json], None]


class Session:
    """Answers the messages of one editor through `send`.

    `handle` never raises, whatever the message; `settle` publishes the diagnostics of what has
    changed and is called when no message waits. `status` is set once the session is over.
    """

    def __init__(self, send: Send) -> None:
        self.status: int | None = None
        self._send = send
        self._buffers = Buffers()
        self._analyses: dict[str, Analysis] = {}
        self._dirty = False
        self._published: dict[str, tuple[Any, list[Json]]] = {}
        self._initialized = False
        self._shut = False
        self._wide = True
        self._snippets = False
        self._targets: tuple[str, ...] = ()

    # ── Messages ──────────────────────────────────────────────────────────────

    def handle(self, message: Json) -> None:
        """Takes one message and answers it, if it is a request."""
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            if "result" not in message and "error" not in message:
                self._error(number, rpc.INVALID_REQUEST, "a message needs a method")
            return
        params = message.get("params")
        request = "id" in message
        try:
            result = self._dispatch(method, params if isinstance(params, dict) else {}, request)
        except rpc.Refusal as refusal:
            self._answer_error(request, number, refusal.code, str(refusal))
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            words = f"{method}: {type(wrong).__name__}: {wrong}"
            self._answer_error(request, number, rpc.INVALID_PARAMS, words)
        except Exception as fault:
            words = f"{method}: a fault of Parlay's own: {type(fault).__name__}: {fault}"
            self._answer_error(request, number, rpc.INTERNAL_ERROR, words)
        else:
            if request:
                self._send({"id": number, "result": result})

    def malformed(self, words: str) -> None:
        """Answers what was no message."""
        self._error(None, rpc.PARSE_ERROR, words)

    def _answer_error(self, request: bool, number: Any, code: int, words: str) -> None:
        if request:
            self._error(number, code, words)
        else:
            self._log(words)

    def _error(self, number: Any, code: int, words: str) -> None:
        self._send({"id": number, "error": {"code": code, "message": words[:1000]}})

    def _log(self, words: str) -> None:
        params = {"type": 2, "message": words[:1000]}
        self._send({"method": "window/logMessage", "params": params})

    def _dispatch(self, method: str, params: Json, request: bool) -> Any:
        if method == "exit":
            self.status = 0 if self._shut else 1
            return None
        if method == "initialize":
            return self._initialize(params)
        if not self._initialized:
            if request:
                raise rpc.Refusal(rpc.NOT_INITIALIZED, "the session is not initialized")
            return None
        if self._shut and request:
            raise rpc.Refusal(rpc.INVALID_REQUEST, "the session is shut down")
        name = METHODS.get(method)
        if name is None:
            if request:
                raise rpc.Refusal(rpc.METHOD_NOT_FOUND, f"no method is called {method}")
            return None
        return getattr(self, name)(params)

    def _initialize(self, params: Json) -> Json:
        self._initialized = True
        client = params.get("capabilities") or {}
        encodings = (client.get("general") or {}).get("positionEncodings") or []
        self._wide = "utf-32" not in encodings
        item = ((client.get("textDocument") or {}).get("completion") or {}).get("completionItem")
        self._snippets = bool((item or {}).get("snippetSupport"))
        from parlay.compiler.backends import TARGETS

        wanted = (params.get("initializationOptions") or {}).get("targets") or []
        self._targets = tuple(target for target in wanted if target in TARGETS)
        return {
            "capabilities": {
                "positionEncoding": "utf-16" if self._wide else "utf-32",
                "textDocumentSync": {"openClose": True, "change": 2, "save": True},
                "hoverProvider": True,
                "completionProvider": {"triggerCharacters": [".", "=", '"', "(", "["]},
                "definitionProvider": True,
                "documentFormattingProvider": True,
                "codeActionProvider": {"codeActionKinds": ["quickfix", "source.fixAll.parlay"]},
            },
            "serverInfo": {"name": "parlay"},
        }

    def _nothing(self, params: Json) -> None:
        del params

    def _shutdown(self, params: Json) -> None:
        del params
        self._shut = True

    # ── Texts ─────────────────────────────────────────────────────────────────

    def _open(self, params: Json) -> None:
        item = params["textDocument"]
        path = resolved(str(item["uri"]))
        self._buffers.open[path] = Buffer(
            str(item["uri"]), path, str(item["text"]), item.get("version")
        )
        self._touch()

    def _change(self, params: Json) -> None:
        buffer = self._buffer(params)
        buffer.version = params["textDocument"].get("version")
        try:
            buffer.change(params["contentChanges"], wide=self._wide)
        finally:
            self._touch()

    def _close(self, params: Json) -> None:
        self._buffers.open.pop(resolved(str(params["textDocument"]["uri"])), None)
        self._touch()

    def _touch(self, params: Json | None = None) -> None:
        """Whatever is known of any text may have changed: files import each other."""
        del params
        self._analyses.clear()
        self._dirty = True

    def _buffer(self, params: Json) -> Buffer:
        uri = str(params["textDocument"]["uri"])
        buffer = self._buffers.of(uri)
        if buffer is None:
            raise rpc.Refusal(rpc.INVALID_PARAMS, f"{uri} is not open")
        return buffer

    def _analysis(self, buffer: Buffer) -> Analysis:
        if buffer.uri not in self._analyses:
            texts = self._buffers.texts()
            self._analyses[buffer.uri] = Analysis(buffer.path, buffer.text, texts, self._targets)
        return self._analyses[buffer.uri]

    def _writer(self, analysis: Analysis) -> Writer:
        sources = {**analysis.loaded.sources, analysis.name: analysis.source}
        return Writer(sources, self._buffers, wide=self._wide)

    # ── Diagnostics ───────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Publishes what is told of the open texts, where that has changed. Never raises."""
        if not self._dirty:
            return
        self._dirty = False
        found: dict[str, list[Json]] = {buffer.uri: [] for buffer in self._buffers.open.values()}
        for buffer in list(self._buffers.open.values()):
            try:
                analysis = self._analysis(buffer)
                told = self._writer(analysis).diagnostics(analysis.job.diagnostics)
            except Exception as fault:
                self._log(f"a fault of Parlay's own: {type(fault).__name__}: {fault}")
                continue
            for uri, each in told.items():
                # An imported text may be told of by several that import it.
                listed = found.setdefault(uri, [])
                listed.extend(one for one in each if one not in listed)
        for uri in self._published:
            found.setdefault(uri, [])
        for uri, each in found.items():
            self._publish(uri, each)
        kept = {buffer.uri for buffer in self._buffers.open.values()}
        sent = self._published.items()
        self._published = {uri: each for uri, each in sent if uri in kept or each[1]}

    def _publish(self, uri: str, each: list[Json]) -> None:
        """Sends the diagnostics of one text, unless the same were sent for the same version."""
        opened = self._buffers.of(uri)
        version = opened.version if opened is not None else None
        if self._published.get(uri) == (version, each):
            return
        self._published[uri] = (version, each)
        params: Json = {"uri": uri, "diagnostics": each}
        if version is not None:
            params["version"] = version
        self._send({"method": "textDocument/publishDiagnostics", "params": params})

    # ── Requests ──────────────────────────────────────────────────────────────

    def _asked(self, params: Json) -> tuple[Analysis, Writer, int]:
        analysis = self._analysis(self._buffer(params))
        writer = self._writer(analysis)
        return analysis, writer, writer.positions(analysis.name).offset(params["position"])

    def _hover(self, params: Json) -> Json | None:
        analysis, writer, offset = self._asked(params)
        found = hover(analysis, offset)
        if found is None:
            return None
        text, span = found
        return {"contents": {"kind": "markdown", "value": text}, "range": writer.range(span)}

    def _complete(self, params: Json) -> Json:
        analysis, writer, offset = self._asked(params)
        items, start = complete(analysis, offset)
        place = writer.range(Span(analysis.name, start, offset))
        return completion(items, place, snippets=self._snippets)

    def _define(self, params: Json) -> Json | None:
        analysis, writer, offset = self._asked(params)
        found = define(analysis, offset)
        return None if found is None else writer.location(found[1])

    def _format(self, params: Json) -> list[Json]:
        """One edit of the whole text; none for a text with errors of its syntax."""
        analysis = self._analysis(self._buffer(params))
        source = analysis.source
        after, _ = formatted(source)
        if after is None or after == source.text:
            return []
        whole = self._writer(analysis).range(Span(source.name, 0, len(source.text)))
        return [{"range": whole, "newText": after}]

    def _actions(self, params: Json) -> list[Json]:
        analysis = self._analysis(buffer := self._buffer(params))
        writer = self._writer(analysis)
        positions = writer.positions(analysis.name)
        start = positions.offset(params["range"]["start"])
        end = positions.offset(params["range"]["end"])
        only = (params.get("context") or {}).get("only")
        found: list[Json] = []
        if only is None or any("quickfix".startswith(str(kind)) for kind in only):
            found += writer.actions(analysis.job.diagnostics, buffer.uri, start, end)
        if only is not None and any("source.fixAll.parlay".startswith(str(k)) for k in only):
            found += self._fix_all(analysis, buffer, writer)
        return found

    def _fix_all(self, analysis: Analysis, buffer: Buffer, writer: Writer) -> list[Json]:
        """What `parlay check --fix` would do, as one edit of the text."""
        from parlay.compiler.commands.fix import fixed

        found = fixed(analysis.path, self._targets, analysis.texts)
        if found.after == found.before:
            return []
        whole = writer.range(Span(analysis.name, 0, len(analysis.text)))
        changes = {buffer.uri: [{"range": whole, "newText": found.after}]}
        return [
            {
                "title": "Apply every fix",
                "kind": "source.fixAll.parlay",
                "edit": {"changes": changes},
            }
        ]


METHODS: Final = {
    "initialized": "_nothing",
    "shutdown": "_shutdown",
    "textDocument/didOpen": "_open",
    "textDocument/didChange": "_change",
    "textDocument/didSave": "_touch",
    "textDocument/didClose": "_close",
    "workspace/didChangeWatchedFiles": "_touch",
    "textDocument/hover": "_hover",
    "textDocument/completion": "_complete",
    "textDocument/definition": "_define",
    "textDocument/formatting": "_format",
    "textDocument/codeAction": "_actions",
}
"""Method of the protocol -> method of `Session`."""
