"""One editor's session: messages in, messages out, diagnostics after every change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from parlay.compiler.server import rpc
from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.answers import Writer
from parlay.compiler.server.buffers import Buffer, Buffers, resolved
from parlay.compiler.server.requests import CAPABILITIES, REQUESTS, Asked, Client

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
        self._client = Client()

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
        answer = REQUESTS.get(method)
        if answer is not None:
            return answer(self._asked(params))
        name = METHODS.get(method)
        if name is None:
            if request:
                raise rpc.Refusal(rpc.METHOD_NOT_FOUND, f"no method is called {method}")
            return None
        return getattr(self, name)(params)

    def _initialize(self, params: Json) -> Json:
        self._initialized = True
        can = params.get("capabilities") or {}
        encodings = (can.get("general") or {}).get("positionEncodings") or []
        text = can.get("textDocument") or {}
        item = (text.get("completion") or {}).get("completionItem") or {}
        from parlay.compiler.backends import TARGETS

        wanted = (params.get("initializationOptions") or {}).get("targets") or []
        self._client = Client(
            wide="utf-32" not in encodings,
            snippets=bool(item.get("snippetSupport")),
            nested=bool(
                (text.get("documentSymbol") or {}).get("hierarchicalDocumentSymbolSupport")
            ),
            targets=tuple(target for target in wanted if target in TARGETS),
        )
        encoding = "utf-16" if self._client.wide else "utf-32"
        return {
            "capabilities": {"positionEncoding": encoding, **CAPABILITIES},
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
            buffer.change(params["contentChanges"], wide=self._client.wide)
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
            self._analyses[buffer.uri] = Analysis(
                buffer.path, buffer.text, texts, self._client.targets
            )
        return self._analyses[buffer.uri]

    def _writer(self, analysis: Analysis) -> Writer:
        sources = {**analysis.loaded.sources, analysis.name: analysis.source}
        return Writer(sources, self._buffers, wide=self._client.wide)

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

    def _asked(self, params: Json) -> Asked:
        buffer = self._buffer(params)
        analysis = self._analysis(buffer)
        return Asked(analysis, self._writer(analysis), buffer.uri, self._client, params)


METHODS: Final = {
    "initialized": "_nothing",
    "shutdown": "_shutdown",
    "textDocument/didOpen": "_open",
    "textDocument/didChange": "_change",
    "textDocument/didSave": "_touch",
    "textDocument/didClose": "_close",
    "workspace/didChangeWatchedFiles": "_touch",
}
"""Method of the protocol -> method of `Session`; what is asked of a text is in `REQUESTS`."""
