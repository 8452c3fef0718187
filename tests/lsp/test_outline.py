"""What an editor draws of a whole text: outline, folds, links, figures, what `auto` comes to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

WHOLE = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
PHASES = """
# two lines
# of comment
model from "llama3-8b"
cluster { nodes = 2, node from "dgx-h100" }
parallel {
  tp = 8
  dp = auto
}
train { seq = 4Ki, micro_batch = 1, global_batch = 16, steps = 100, recompute = full }
phase "long" {
  train { seq = 8Ki }
}
"""


def asked(client: Any, method: str, uri: str, **more: Any) -> Any:
    return client.request(f"textDocument/{method}", textDocument={"uri": uri}, **more)


def test_an_outline(start: Callable[..., Any], folder: Path) -> None:
    tree = {"textDocument": {"documentSymbol": {"hierarchicalDocumentSymbolSupport": True}}}
    uri = (folder / "run.par").as_uri()
    text = (folder / "run.par").read_text()
    client = start(tree)
    client.show(uri, text)
    found = asked(client, "documentSymbol", uri)
    assert [each["name"] for each in found] == [
        *("shared/base.par", "tokens_per_sequence", "parallel", "train"),
        "assert memory.peak <= 90% * gpu.memory",
    ]
    assert [each["name"] for each in found[2]["children"]] == ["tp", "pp", "dp"]
    seq = found[3]["children"][0]
    assert (seq["name"], seq["detail"]) == ("seq", "tokens_per_sequence")
    lines = text.splitlines()
    for each in found:
        at, inner = each["selectionRange"]["start"], each["range"]
        assert inner["start"]["line"] <= at["line"] <= inner["end"]["line"]
        assert lines[at["line"]][at["character"] :]
    flat = start()
    flat.show(uri, text)
    listed = asked(flat, "documentSymbol", uri)
    assert {"seq", "parallel"} <= {each["name"] for each in listed}
    assert next(each for each in listed if each["name"] == "tp")["containerName"] == "parallel"


def test_folds_and_links(shared: tuple[Any, Path]) -> None:
    client, folder = shared
    uri = (folder / "phases.par").as_uri()
    client.show(uri, PHASES)
    found = [
        (each["startLine"], each["endLine"], each["kind"])
        for each in asked(client, "foldingRange", uri)
    ]
    assert found == [(1, 2, "comment"), (5, 7, "region"), (10, 11, "region")]
    assert asked(client, "documentLink", uri) == []
    run = (folder / "run.par").as_uri()
    text = (folder / "run.par").read_text()
    client.show(run, text + 'import "gone.par"\n')
    (link,) = asked(client, "documentLink", run)
    assert link["target"] == (folder / "shared" / "base.par").as_uri()
    assert link["range"]["start"] == {"line": 0, "character": 7}


def test_figures_of_each_phase(shared: tuple[Any, Path], parlay: Any, tmp_path: Path) -> None:
    """They are those of the ledger, above the block that is the phase's."""
    client, folder = shared
    uri = (folder / "phases.par").as_uri()
    client.show(uri, PHASES)
    found = asked(client, "codeLens", uri)
    assert [each["range"]["start"]["line"] for each in found] == [5, 10]
    (tmp_path / "phases.par").write_text(PHASES)
    printed = parlay("ledger", tmp_path / "phases.par").out
    for each in found:
        title = each["command"]["title"]
        assert title.startswith("peak ") and " · step " in title and " · MFU " in title
        rate = title.partition(" tokens/s/GPU")[0].rpartition(" ")[2]
        assert f", {rate} tokens/s/GPU" in printed
    assert found[0]["command"]["title"] != found[1]["command"]["title"]
    client.show(uri, PHASES.replace("tp = 8", "tp = 3"))
    assert asked(client, "codeLens", uri) == []


def test_what_auto_comes_to(shared: tuple[Any, Path]) -> None:
    client, folder = shared
    uri = (folder / "phases.par").as_uri()
    client.show(uri, PHASES)
    (hint,) = asked(client, "inlayHint", uri, range=WHOLE)
    assert (hint["label"], hint["position"]) == (" = 2", {"line": 7, "character": 11})
    nothing = {"start": {"line": 0, "character": 0}, "end": {"line": 5, "character": 0}}
    assert asked(client, "inlayHint", uri, range=nothing) == []
    # The planner's to choose: it has no value yet.
    client.show(uri, PHASES.replace("tp = 8", "tp = auto"))
    assert asked(client, "inlayHint", uri, range=WHOLE) == []
