"""The wire: odd messages, half-typed text, and answers that the protocol's own types accept."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_every_prefix_of_a_file_is_answered(client: Any, folder: Path) -> None:
    text = (folder / "run.par").read_text()
    uri = (folder / "run.par").as_uri()
    client.open(uri, "")
    for end in range(0, len(text), 9):
        half = text[:end]
        document = {"uri": uri, "version": end + 2}
        client.notify(
            "textDocument/didChange", textDocument=document, contentChanges=[{"text": half}]
        )
        line, character = half.count("\n"), len(half) - half.rfind("\n") - 1
        for method in ("hover", "completion", "definition"):
            client.at(f"textDocument/{method}", uri, line, character)
        for method in ("documentSymbol", "foldingRange", "documentLink", "codeLens"):
            client.request(f"textDocument/{method}", textDocument={"uri": uri})
    assert not [one for one in client.notifications if one["method"] == "window/logMessage"]


def test_random_edits_never_end_it(client: Any, folder: Path) -> None:
    chance = random.Random(7)
    text = (folder / "run.par").read_text()
    uri = (folder / "run.par").as_uri()
    client.open(uri, text)
    for version in range(2, 150):
        a = {"line": chance.randrange(22), "character": chance.randrange(40)}
        b = {"line": chance.randrange(22), "character": chance.randrange(40)}
        typed = chance.choice(
            ["", "{", "}", '"', "= auto", "(", "let", "\U0001f600", "\ud800", "#"]
        )
        change = {"range": {"start": a, "end": b}, "text": typed}
        client.notify(
            "textDocument/didChange",
            textDocument={"uri": uri, "version": version},
            contentChanges=[change],
        )
        method = chance.choice(["hover", "completion", "definition"])
        client.at(f"textDocument/{method}", uri, a["line"], a["character"])
    client.published(uri, 149)
    assert not [one for one in client.notifications if one["method"] == "window/logMessage"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("textDocument/hover", {}, -32602),
        ("textDocument/hover", {"textDocument": {"uri": "file:///none.par"}}, -32602),
        ("textDocument/rename", {}, -32601),
        ("textDocument/formatting", {"textDocument": 5}, -32602),
    ],
)
def test_odd_requests_get_an_error(
    client: Any, method: str, params: dict[str, Any], code: int
) -> None:
    assert client.ask(method, **params)["error"]["code"] == code


def test_odd_bytes_and_messages(client: Any, folder: Path) -> None:
    client.send_bytes(b"Content-Length: 3\r\n\r\n{{{")
    assert client.take()["error"]["code"] == -32700
    client.send_bytes(b"content-length: 2\r\nContent-Type: x\r\n\r\n[]")
    assert client.take()["error"]["code"] == -32700
    client.send({"id": 90})
    assert client.take()["error"]["code"] == -32600
    client.send({"id": 91, "result": None})
    client.notify("textDocument/didOpen")
    client.notify("$/cancelRequest", id=1)
    client.notify("textDocument/didChange", textDocument={"uri": "file:///none"})
    uri = (folder / "run.par").as_uri()
    assert client.open(uri, "model {") != []


def test_a_text_that_was_never_saved(client: Any) -> None:
    told = client.open("untitled:Untitled-1", "parallel { tq = 8 }")
    assert [one["code"] for one in told] == ["T002"]


def test_the_end(start: Callable[..., Any]) -> None:
    client = start()
    client.notify("exit")
    assert client.process.wait(120) == 1
    client = start()
    client.process.stdin.close()
    assert client.process.wait(120) == 1
    client = start()
    client.request("shutdown")
    assert client.ask("textDocument/hover")["error"]["code"] == -32600
    client.notify("exit")
    assert client.process.wait(120) == 0


def test_answers_are_of_the_protocols_types(client: Any, folder: Path) -> None:
    types = pytest.importorskip("lsprotocol.types")
    converter = pytest.importorskip("lsprotocol.converters").get_converter()
    text = (folder / "run.par").read_text().replace("tp = 8", "tq = 8")
    uri = (folder / "run.par").as_uri()
    told = client.open(uri, text)
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 30, "character": 0}}
    for one in told:
        converter.structure(one, types.Diagnostic)
    document = {"uri": uri}
    for item in client.at("textDocument/completion", uri, 5, 2)["items"]:
        converter.structure(item, types.CompletionItem)
    converter.structure(client.at("textDocument/hover", uri, 7, 3), types.Hover)
    converter.structure(client.at("textDocument/definition", uri, 11, 10), types.Location)
    for method, kind in (
        ("documentSymbol", types.SymbolInformation),
        ("foldingRange", types.FoldingRange),
        ("documentLink", types.DocumentLink),
        ("codeLens", types.CodeLens),
        ("inlayHint", types.InlayHint),
    ):
        client.show(uri, (folder / "run.par").read_text())
        found = client.request(f"textDocument/{method}", textDocument=document, range=whole)
        assert found
        for one in found:
            converter.structure(one, kind)
    client.show(uri, text)
    for action in client.request(
        "textDocument/codeAction", textDocument=document, range=whole, context={"diagnostics": []}
    ):
        converter.structure(action, types.CodeAction)
    converter.structure(client.capabilities, types.ServerCapabilities)
