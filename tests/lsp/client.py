"""A client of the tests' own: starts `parlay lsp` and speaks the protocol over its pipes."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

Json = dict[str, Any]
WAIT_S = 120


class Client:
    """One session; requests wait for their answers, notifications are kept as they come."""

    def __init__(self, folder: Path, capabilities: Json | None = None, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "parlay.compiler.cli", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
        )
        self.arrived: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self.notifications: list[Json] = []
        self.diagnostics: dict[str, list[Json]] = {}
        self.versions: dict[str, int | None] = {}  # Told since the last edit, not yet asked for.
        self.number = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.capabilities = self.request(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            capabilities=capabilities or {},
            initializationOptions=options,
        )["capabilities"]
        self.notify("initialized")

    # ── The wire ──────────────────────────────────────────────────────────────

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := stream.readline()).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not line:
                self.arrived.put(None)
                return
            self.arrived.put(json.loads(stream.read(length)))

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Json) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def take(self) -> Json:
        message = self.arrived.get(timeout=WAIT_S)
        assert message is not None, "the server has ended"
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            self.notifications.append(message)
            if message["method"] == "textDocument/publishDiagnostics":
                params = message["params"]
                self.diagnostics[params["uri"]] = params["diagnostics"]
                self.versions[params["uri"]] = params.get("version")
        return message

    def notify(self, method: str, **params: Any) -> None:
        if method in ("textDocument/didOpen", "textDocument/didChange"):
            self.versions.pop(params.get("textDocument", {}).get("uri", ""), None)
        self.send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Json:
        """The whole answer, be it an error."""
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while True:
            message = self.take()
            if message.get("id") == self.number and "method" not in message:
                return message

    def request(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    # ── What an editor does ───────────────────────────────────────────────────

    def open(self, uri: str, text: str, version: int = 1) -> list[Json]:
        item = {"uri": uri, "languageId": "par", "version": version, "text": text}
        self.notify("textDocument/didOpen", textDocument=item)
        return self.published(uri, version)

    def show(self, uri: str, text: str) -> None:
        """Opens a text, or gives an open one anew, without waiting for what is told of it."""
        self.notify("textDocument/didClose", textDocument={"uri": uri})
        item = {"uri": uri, "languageId": "par", "version": 1, "text": text}
        self.notify("textDocument/didOpen", textDocument=item)

    def change(self, uri: str, version: int, *changes: Json) -> list[Json]:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", textDocument=document, contentChanges=list(changes))
        return self.published(uri, version)

    def published(self, uri: str, version: int | None) -> list[Json]:
        """The diagnostics of one version, once they come.

        They may have come already, while an answer was waited for: the server tells them when
        it has nothing else to do, be that before or after it read the request.
        """
        while uri not in self.versions or self.versions[uri] != version:
            self.take()
        del self.versions[uri]
        return self.diagnostics[uri]

    def at(self, method: str, uri: str, line: int, character: int, **more: Any) -> Any:
        position = {"line": line, "character": character}
        return self.request(method, textDocument={"uri": uri}, position=position, **more)

    def close(self) -> int:
        self.request("shutdown")
        self.notify("exit")
        status = self.process.wait(WAIT_S)
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        assert errors == b"", errors
        return status
