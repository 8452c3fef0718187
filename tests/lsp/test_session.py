"""An editing session over stdio: what an editor asks, and what it gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def uri(folder: Path, name: str = "run.par") -> str:
    return (folder / name).as_uri()


def place(text: str, wanted: str, after: int = 0) -> tuple[int, int]:
    """Line and character of the first `wanted`, `after` characters into it."""
    before = text[: text.index(wanted) + after]
    return before.count("\n"), len(before) - before.rfind("\n") - 1


@pytest.fixture
def text(folder: Path) -> str:
    return (folder / "run.par").read_text()


def test_a_clean_file_has_no_error(client: Any, folder: Path, text: str) -> None:
    assert [one for one in client.open(uri(folder), text) if one["severity"] == 1] == []


def test_diagnostics_while_typing(client: Any, folder: Path, text: str) -> None:
    """The text that counts is the editor's, not the file's."""
    client.open(uri(folder), text)
    line, start = place(text, "tp = 8", 5)
    whole = {"line": line, "character": start}, {"line": line, "character": start + 1}
    change = {"range": {"start": whole[0], "end": whole[1]}, "text": "3"}
    told = client.change(uri(folder), 2, change)
    codes = {one["code"] for one in told}
    assert "L202" in codes
    found = next(one for one in told if one["code"] == "L202")
    assert found["range"] == {"start": whole[0], "end": whole[1]}
    assert found["severity"] == 1 and found["source"] == "parlay"
    assert found["relatedInformation"]
    assert client.change(uri(folder), 3, {"text": text}) == [] or all(
        one["severity"] > 1 for one in client.diagnostics[uri(folder)]
    )


def test_an_unsaved_import_counts(client: Any, folder: Path, text: str) -> None:
    base = (folder / "shared" / "base.par").read_text()
    client.open(uri(folder), text)
    client.open(uri(folder, "shared/base.par"), base)
    told = client.change(
        uri(folder, "shared/base.par"), 2, {"text": base.replace("nodes = 2", "nodes = 3")}
    )
    assert isinstance(told, list)
    assert any(one["code"] in ("L201", "L210") for one in client.diagnostics[uri(folder)])


def test_a_mistake_in_an_imported_file_is_told_there(client: Any, folder: Path, text: str) -> None:
    (folder / "shared" / "base.par").write_text('model from "lama3-8b"\n')
    client.open(uri(folder), text)
    told = client.published(uri(folder, "shared/base.par"), None)
    assert [one["code"] for one in told] == ["T003"]
    client.notify("textDocument/didClose", textDocument={"uri": uri(folder)})
    assert client.published(uri(folder, "shared/base.par"), None) == []


@pytest.mark.parametrize(
    ("wanted", "after", "said"),
    [
        ("dp = auto", 0, ["parallel.dp", "`1`", "Derived", "cluster.gpus", "Replicas"]),
        ("seq = tok", 0, ["train.seq", "`4096`", "Written in the file"]),
        ("seq = tokens_per", 8, ["tokens_per_sequence", "`4Ki`"]),
        ("* width", 3, ["width", "`2`"]),
        ("adamw(", 1, ["adamw", "lr", "weight_decay"]),
        ("lr = 3e-4", 1, ["lr", "Peak learning rate", "Written"]),
        ("core_attention", 3, ["core_attention"]),
        ("memory.peak", 3, ["memory.peak", "GB", "Formula"]),
        ("gpu.memory", 3, ["cluster.node.gpu.memory", "85.5 GB", "From the preset"]),
        ("parallel {", 2, ["parallel", "How the work is cut", "sequence_parallel"]),
    ],
)
def test_hover(shared: tuple[Any, Path], wanted: str, after: int, said: list[str]) -> None:
    client, folder = shared
    text = (folder / "run.par").read_text()
    client.show(uri(folder), text)
    found = client.at("textDocument/hover", uri(folder), *place(text, wanted, after))
    assert found["contents"]["kind"] == "markdown"
    for words in said:
        assert words in found["contents"]["value"]


def test_hover_over_a_preset(client: Any, folder: Path) -> None:
    base = (folder / "shared" / "base.par").read_text()
    client.open(uri(folder, "shared/base.par"), base)
    where = place(base, "llama3-8b", 2)
    found = client.at("textDocument/hover", uri(folder, "shared/base.par"), *where)
    assert "layers = 32" in found["contents"]["value"] and "Source" in found["contents"]["value"]


def test_hover_over_a_measured_file(client: Any, folder: Path) -> None:
    (folder / "here.json").write_text('{"version": 1, "calibration": {"copy": 2.9e12}}')
    text = 'cluster { nodes = 1, node from "dgx-h100", calibration from "here.json" }\n'
    client.open(uri(folder), text)
    found = client.at("textDocument/hover", uri(folder), *place(text, "here.json", 2))
    assert "copy = 2.9 TB/s" in found["contents"]["value"]


@pytest.mark.parametrize(
    ("typed", "offered", "not_offered"),
    [
        ("", ["model", "cluster", "let", "assert", "phase", "import"], ["tp"]),
        ("par", ["parallel"], []),
        ("parallel {\n  ", ["tp", "schedule", "dp"], ["let", "seq"]),
        ("parallel {\n  tp = 8\n  ", ["pp", "zero"], ["tp"]),
        ("parallel { tp = 8, s", ["schedule", "sequence_parallel"], ["tp"]),
        ("parallel { schedule = ", ["one_f_one_b", "interleaved", "auto"], ["on", "model"]),
        ("parallel { schedule = interleaved(", ["chunks"], ["one_f_one_b"]),
        ("parallel { order = [", ["tp", "cp", "dp", "pp"], []),
        ("parallel { offload = cpu(optimizer, ", ["params"], ["optimizer"]),
        ("parallel { sequence_parallel = ", ["on", "off"], ["model"]),
        ("parallel { tp = ", ["auto", "cluster", "model", "min"], ["on"]),
        ("parallel { tp = model.", ["model.heads", "model.experts"], ["heads"]),
        ("parallel { tp = gpu.", ["gpu.memory"], []),
        ("train { precision = ", ["bf16", "fp8"], ["auto"]),
        ("train { optimizer = adamw(lr = 1e-3, ", ["betas", "states"], ["lr"]),
        ("train { optimizer = adamw(states = ", ["fp32", "bf16"], ["lr"]),
        ("cluster { node { link { kind = ", ["nvlink", "pcie"], []),
        ('phase "long" {\n train {\n ', ["seq"], ["tp"]),
        ('phase "long" {\n ', ["train"], ["let", "phase"]),
        ('model from "', ["llama3-70b", "gpt2-xl"], ["dgx-h100"]),
        ('cluster { node from "dgx', ["dgx-h100"], ["llama3-70b"]),
        ('cluster { node { gpu from "', ["h100-sxm-80gb"], ["dgx-h100"]),
        ('import "', ["shared/base.par"], ["new.par"]),
        ('target "', ["torch"], []),
        ("assert ", ["memory", "throughput", "cluster", "min"], ["on"]),
        ("assert memory.", ["memory.peak", "memory.weights"], []),
        ("let width = 8\nparallel { tp = ", ["width"], []),
        ("allow ", ["N201"], ["L203"]),
        ("# tp = ", [], ["auto"]),
        ("let x = 1", [], ["model"]),
    ],
)
def test_completion(
    shared: tuple[Any, Path], typed: str, offered: list[str], not_offered: list[str]
) -> None:
    client, folder = shared
    client.show(uri(folder, "new.par"), typed)
    line, character = typed.count("\n"), len(typed) - typed.rfind("\n") - 1
    found = client.at("textDocument/completion", uri(folder, "new.par"), line, character)
    labels = [item["label"] for item in found["items"]]
    assert set(offered) <= set(labels), labels
    assert not set(not_offered) & set(labels), labels
    assert len(labels) == len(set(labels))
    for item in found["items"]:
        assert item["textEdit"]["range"]["end"] == {"line": line, "character": character}


def test_measured_files_are_offered(client: Any, folder: Path) -> None:
    (folder / "here.json").write_text("{}")
    text = 'cluster { calibration from "'
    client.open(uri(folder, "new.par"), text)
    found = client.at("textDocument/completion", uri(folder, "new.par"), 0, len(text))
    assert [item["label"] for item in found["items"]] == ["here.json"]


def test_snippets_only_where_they_are_taken(start: Callable[..., Any], folder: Path) -> None:
    item = {"completionItem": {"snippetSupport": True}}
    client = start({"textDocument": {"completion": item}})
    for one, wanted in ((client, "schedule = $0"), (start(), "schedule")):
        one.open(uri(folder, "new.par"), "parallel { sch")
        found = one.at("textDocument/completion", uri(folder, "new.par"), 0, 14)
        texts = {each["label"]: each["textEdit"]["newText"] for each in found["items"]}
        assert texts["schedule"] == wanted


@pytest.mark.parametrize(
    ("wanted", "after", "file", "target"),
    [
        ("seq = tokens_per", 8, "run.par", "tokens_per_sequence = 4Ki"),
        ("* width", 3, "shared/base.par", "width = 2"),
        ('"shared/base.par"', 4, "shared/base.par", "let width"),
        ("gpu.memory", 2, "shared/base.par", '"dgx-h100"'),
    ],
)
def test_definition(
    shared: tuple[Any, Path], wanted: str, after: int, file: str, target: str
) -> None:
    client, folder = shared
    text = (folder / "run.par").read_text()
    client.show(uri(folder), text)
    found = client.at("textDocument/definition", uri(folder), *place(text, wanted, after))
    assert found["uri"] == uri(folder, file)
    start = place((folder / file).read_text(), target)
    assert found["range"]["start"] == {"line": start[0], "character": start[1]}


def test_nothing_is_defined_nowhere(client: Any, folder: Path, text: str) -> None:
    client.open(uri(folder), text)
    assert client.at("textDocument/definition", uri(folder), 1, 0) is None
    assert client.at("textDocument/hover", uri(folder), 1, 0) is None


def test_formatting(client: Any, folder: Path) -> None:
    client.open(uri(folder), "parallel{tp=8}  # cut\r\n")
    edits = client.request("textDocument/formatting", textDocument={"uri": uri(folder)}, options={})
    assert [edit["newText"] for edit in edits] == ["parallel { tp = 8 }  # cut\n"]
    client.change(uri(folder), 2, {"text": "parallel{tp="})
    edits = client.request("textDocument/formatting", textDocument={"uri": uri(folder)}, options={})
    assert edits == []


def test_a_quick_fix_mends_the_text(client: Any, folder: Path, text: str) -> None:
    broken = text.replace("tp = 8", "tq = 8")
    (found,) = [one for one in client.open(uri(folder), broken) if one["code"] == "T002"]
    actions = client.request(
        "textDocument/codeAction",
        textDocument={"uri": uri(folder)},
        range=found["range"],
        context={"diagnostics": [found]},
    )
    assert actions[0]["kind"] == "quickfix" and actions[0]["isPreferred"]
    (edit,) = actions[0]["edit"]["changes"][uri(folder)]
    told = client.change(uri(folder), 2, {"range": edit["range"], "text": edit["newText"]})
    assert "T002" not in {one["code"] for one in told}


def test_every_fix_at_once(client: Any, folder: Path, text: str) -> None:
    broken = text.replace("tp = 8", "tq = 8").replace("seq = ", "sq = ")
    client.open(uri(folder), broken)
    (action,) = client.request(
        "textDocument/codeAction",
        textDocument={"uri": uri(folder)},
        range={"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
        context={"diagnostics": [], "only": ["source.fixAll"]},
    )
    (edit,) = action["edit"]["changes"][uri(folder)]
    assert "tp = 8" in edit["newText"] and "seq = " in edit["newText"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_places_behind_wide_characters(
    start: Callable[..., Any], folder: Path, encoding: str
) -> None:
    client = start({"general": {"positionEncodings": [encoding]}})
    assert client.capabilities["positionEncoding"] == encoding
    text = 'let x = "😀😀" let y = z\n'
    told = client.open(uri(folder), text)
    found = next(one for one in told if one["code"].startswith("T"))
    shift = 2 if encoding == "utf-16" else 0
    character = text.index("z") + shift
    assert found["range"]["start"] == {"line": 0, "character": character}
    place = {"line": 0, "character": character}
    change = {"range": {"start": place, "end": {**place, "character": character + 1}}, "text": "8"}
    assert "T" not in {one["code"][:1] for one in client.change(uri(folder), 2, change)}


def test_rules_of_a_target_by_an_option(start: Callable[..., Any], folder: Path) -> None:
    text = 'model from "llama3-8b"\ncluster { node from "laptop" }\nparallel { cp = 8 }\n'
    assert not [one for one in start().open(uri(folder), text) if one["code"].startswith("B")]
    client = start(targets=["torch", "none"])
    assert [one for one in client.open(uri(folder), text) if one["code"].startswith("B")]
