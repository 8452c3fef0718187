"""The JSON documents: their keys, what is in them, and that nothing but JSON is on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EIGHT_NODES = """
model from "llama3-70b"
cluster { nodes = 8, node from "dgx-h100" }
parallel {
  tp = 8
  pp = 4
  dp = auto
  order = [tp, pp, dp]
}
"""


@pytest.fixture
def sixty_four(tmp_path: Path) -> Path:
    path = tmp_path / "64.par"
    path.write_text(EIGHT_NODES)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.par"
    path.write_text("# first\nparallel {\n  tp = 2\n  tp = 4, tpp = 1\n}\n")
    return path


def document(ended: Any) -> Any:
    return json.loads(ended.out)


# ── check ─────────────────────────────────────────────────────────────────────


def test_check(parlay: Any, wrong: Path, tiny: Path) -> None:
    ended = parlay("check", wrong, tiny, "--json")
    told = document(ended)
    assert list(told) == ["version", "files", "summary"]
    assert told["version"] == 1
    assert told["summary"] == {"errors": 2, "warnings": 0}
    assert [entry["file"] for entry in told["files"]] == [str(wrong), str(tiny)]
    twice, unknown = told["files"][0]["diagnostics"]
    assert set(twice) == {
        *("code", "severity", "message", "file", "line", "column", "end_line", "end_column"),
        *("labels", "notes", "help", "fixes"),
    }
    assert (twice["code"], twice["severity"], twice["file"]) == ("T005", "error", str(wrong))
    # Counted from 1, the end after the last.
    assert (twice["line"], twice["column"]) == (4, 3)
    assert (twice["end_line"], twice["end_column"]) == (4, 5)
    assert {(label["line"], label["text"]) for label in twice["labels"]} == {
        (4, "given again here"),
        (3, "given first here"),
    }
    assert set(twice["labels"][0]) == {
        *("file", "line", "column", "end_line", "end_column", "text"),
    }
    edit = unknown["fixes"][0]["edits"][0]
    assert set(edit) == {"file", "start", "end", "text"}
    # Offsets count code points from 0.
    assert wrong.read_text()[edit["start"] : edit["end"]] == "tpp"
    assert ended.status == 1
    assert ended.err == ""


def test_check_without_a_place(parlay: Any, tmp_path: Path) -> None:
    told = document(parlay("check", "--json", tmp_path / "missing.par"))
    (missing,) = told["files"][0]["diagnostics"]
    assert missing["line"] is missing["column"] is missing["end_line"] is None
    assert missing["labels"] == []


def test_both_spellings_of_json(parlay: Any, wrong: Path) -> None:
    assert parlay("check", wrong, "--json") == parlay("check", wrong, "--format", "json")


def test_sarif(parlay: Any, wrong: Path) -> None:
    ended = parlay("check", wrong, "--format", "sarif")
    told = document(ended)
    assert told["version"] == "2.1.0"
    (run,) = told["runs"]
    assert run["tool"]["driver"]["name"] == "parlay"
    assert [result["ruleId"] for result in run["results"]] == ["T005", "T002"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 4
    assert ended.status == 1


def test_github(parlay: Any, wrong: Path) -> None:
    ended = parlay("check", wrong, "--format", "github")
    first = ended.out.splitlines()[0]
    assert first.startswith("::error ")
    assert "line=4" in first
    assert ended.status == 1


@pytest.mark.parametrize("format", ["terminal", "json", "sarif", "github"])
def test_formats_agree_on_the_status(parlay: Any, tiny: Path, wrong: Path, format: str) -> None:
    assert parlay("check", tiny, "--format", format).status == 0
    assert parlay("check", tiny, wrong, "--format", format).status == 1


def test_check_for_a_target(parlay: Any, tmp_path: Path, tiny: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(tiny.read_text().replace("layers = 4", "layers = 4, dropout = 10%"))
    assert parlay("check", path).status == 0
    ended = parlay("check", path, "--target", "torch", "--json")
    told = document(ended)["files"][0]["diagnostics"]
    refused = [one for one in told if one["severity"] == "error"]
    assert [one["code"] for one in refused] == ["B301"]
    assert "`dropout = 10%`" in refused[0]["message"]
    assert ended.status == 1


def test_a_diagnostic_in_an_imported_file_names_it(parlay: Any, tmp_path: Path) -> None:
    (tmp_path / "base.par").write_text("parallel { tp = 0 }\n")
    path = tmp_path / "job.par"
    path.write_text('import "base.par"\n')
    (entry,) = document(parlay("check", path, "--json"))["files"]
    assert entry["file"] == str(path)
    assert [(one["code"], one["file"]) for one in entry["diagnostics"]] == [
        ("T106", str(tmp_path / "base.par"))
    ]


# ── layout ────────────────────────────────────────────────────────────────────


def test_layout(parlay: Any, sixty_four: Path) -> None:
    ended = parlay("layout", sixty_four, "--json")
    told = document(ended)
    assert list(told) == ["version", "phases"]
    (phase,) = told["phases"]
    assert {"name", "world", "axes", "expert_axes", "stages"} <= set(phase)
    assert "groups" not in phase
    assert (phase["name"], phase["world"]) == ("main", 64)
    axes = [(axis["name"], axis["size"], axis["stride"]) for axis in phase["axes"]]
    assert [axis for axis in axes if axis[1] > 1] == [("tp", 8, 1), ("pp", 4, 8), ("dp", 2, 32)]
    assert [stage["layers"] for stage in phase["stages"]] == [[0, 19], [20, 39], [40, 59], [60, 79]]
    assert [stage["embedding"] for stage in phase["stages"]] == [True, False, False, False]
    assert [stage["head"] for stage in phase["stages"]] == [False, False, False, True]
    assert all(
        (stage["chunk"], stage["stage"]) == (0, i) for i, stage in enumerate(phase["stages"])
    )
    assert (ended.status, ended.err) == (0, "")


def test_groups_of_64_gpus(parlay: Any, sixty_four: Path) -> None:
    (phase,) = document(parlay("layout", sixty_four, "--groups", "--json"))["phases"]
    groups = phase["groups"]
    assert len(groups["dp"]) == 32
    assert all(len(ranks) == 2 for ranks in groups["dp"])
    assert [3, 35] in groups["dp"]
    assert [3, 11, 19, 27] in groups["pp"]
    assert [0, 1, 2, 3, 4, 5, 6, 7] in groups["tp"]
    for kind in ("tp", "pp", "dp"):
        assert sorted(rank for ranks in groups[kind] for rank in ranks) == list(range(64))


def test_one_rank(parlay: Any, sixty_four: Path) -> None:
    (phase,) = document(parlay("layout", sixty_four, "--rank", 3, "--json"))["phases"]
    told = json.dumps(phase["rank"])
    assert "[3, 11, 19, 27]" in told
    assert "[3, 35]" in told


def test_phases(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        EIGHT_NODES + '\nphase "long" { cluster { nodes = 16 }, parallel { pp = 2 } }\n'
    )
    ended = parlay("layout", path, "--json")
    told = document(ended)
    assert [(phase["name"], phase["world"]) for phase in told["phases"]] == [
        ("main", 64),
        ("long", 128),
    ]
    # Rank 100 is one of the second phase alone.
    main, long = document(parlay("layout", path, "--rank", 100, "--json"))["phases"]
    assert "rank" not in main
    assert "rank" in long


def test_the_degrees_alone_are_enough(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model { params = 7.5B }\ncluster { node from "dgx-h100" }\nparallel { tp = 8 }\n'
    )
    ended = parlay("layout", path, "--json")
    assert ended.status == 0, ended.err
    assert document(ended)["phases"][0]["world"] == 8


def test_a_layout_that_is_none_goes_to_stderr(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text('cluster { node from "dgx-h100" }\nparallel { tp = 3, dp = 3 }\n')
    ended = parlay("layout", path, "--json")
    assert (ended.status, parlay("layout", path).out) == (1, "")
    assert "error[L201]" in ended.err
    (told,) = document(ended)["files"]
    assert [one["code"] for one in told["diagnostics"]] == ["L201"]


# ── What runs on ranks ────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.distributed
def test_verify(parlay: Any, page: Any, tiny: Path) -> None:
    pytest.importorskip("torch")
    ended = parlay("verify", tiny, "--json")
    told = document(ended)
    assert page.lacking(told, "verify") == []
    assert (told["version"], told["dtype"], told["passed"]) == (1, "float64", True)
    for part in ("gradients", "weights"):
        assert told[part]["compared"] > 0
    assert told["loss"]["max_relative_error"] < 1e-10
    assert told["collectives"]["match"] is True
    assert told["collectives"]["rows"]
    assert ended.status == 0


@pytest.mark.slow
@pytest.mark.distributed
def test_metrics(parlay: Any, page: Any, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert parlay("run", tiny, "--steps", 3, "--out", tmp_path).status == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert [page.lacking(line, "metrics") for line in lines] == [[], [], []]
    assert [line["tokens"] for line in lines] == [16 * 128, 2 * 16 * 128, 3 * 16 * 128]
