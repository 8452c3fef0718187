"""What has no answer: with `--json` one document all the same, and why it is that one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

WRONG = 'cluster { node from "dgx-h100" }\nparallel { tp = 3, dp = 3, dpp = 1 }\n'


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("wrong.par")
    path.write_text(WRONG)
    return path


def refused(ended: Any, status: int) -> Any:
    told = json.loads(ended.out)
    assert (told["version"], told["status"], ended.status) == (1, status, status)
    assert ended.err and "\x1b" not in ended.out
    return told


# ── Files ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [
        ["layout", "wrong.par"],
        ["plan", "wrong.par"],
        ["verify", "wrong.par"],
        ["compare", "wrong.par", "metrics.jsonl"],
        ["diff", "wrong.par", "wrong.par"],
    ],
    ids=lambda command: command[0],
)
def test_a_file_with_errors(parlay: Any, wrong: Path, command: list[str]) -> None:
    """Its diagnostics are those that `check` tells, place by place."""
    told = refused(parlay(*command, "--json"), 1)
    target = ["--target", "torch"] if command[0] == "verify" else []
    checked = json.loads(parlay("check", wrong, *target, "--json").out)["files"]
    assert checked[0]["diagnostics"]
    assert (told["files"], told["error"]) == (checked, None)


def test_the_ledger_of_several_files(parlay: Any, wrong: Path, tiny: Path) -> None:
    """One that has none keeps no other from its own; each is told with its diagnostics."""
    Path("half.par").write_text('model from "llama3-8b"\n')
    ended = parlay("ledger", wrong, "half.par", "gone.par", tiny, "--json")
    bad, half, gone, good = json.loads(ended.out)["files"]
    assert ended.status == 1
    assert [each["file"] for each in (bad, half, gone)] == ["wrong.par", "half.par", "gone.par"]
    assert {one["code"] for one in bad["diagnostics"]} == {"L201", "T002"}
    assert (half["diagnostics"], half["error"]) == ([], "the ledger needs a model and a cluster")
    assert gone["diagnostics"][0]["code"] == "P001"
    assert not bad["phases"] and not half["phases"] and not gone["phases"]
    assert good["phases"][0]["world"] == 8
    assert [one["code"] for one in good["diagnostics"]] == ["L226"]
    people = parlay("ledger", wrong, tiny)
    assert people.status == 1 and "on 8 GPUs" in people.out


def test_what_no_rule_says(parlay: Any, wrong: Path, tiny: Path) -> None:
    wrong.write_text('model from "llama3-8b"\n')
    cases = {
        ("layout", wrong): "wrong.par: a layout needs a cluster and every degree",
        ("plan", tiny): "nothing is open",
        ("compare", tiny, "gone.jsonl"): "states no peak",
        ("verify", tiny, "--code", wrong.parent): "is not a folder with train.py",
        ("calibrate", "--from", "gone.log"): "gone.log cannot be read",
    }
    for command, words in cases.items():
        told = refused(parlay(*command, "--json"), 1)
        assert words in told["error"]
        assert not any(each["diagnostics"] for each in told["files"] if "tiny" not in each["file"])


# ── Command lines, and faults ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [
        ["ledger", "--json"],
        ["chekc", "--json"],
        ["layout", "wrong.par", "--json", "--rankk", "1"],
        ["check", "--json", "--target", "tortch", "wrong.par"],
        ["diff", "wrong.par", "wrong.par", "--json", "--fail-if", "nothing"],
    ],
)
def test_wrong_usage(parlay: Any, wrong: Path, command: list[str]) -> None:
    told = refused(ended := parlay(*command), 2)
    assert told["files"] == [] and told["error"] in ended.err


def test_a_rank_that_does_not_exist(parlay: Any, tiny: Path) -> None:
    assert "no rank 8" in refused(parlay("layout", tiny, "--rank", 8, "--json"), 2)["error"]


def test_a_fault(parlay: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the layout\nof nothing")

    monkeypatch.delenv("PARLAY_TRACEBACK", raising=False)
    monkeypatch.setattr("parlay.compiler.pipeline.load", broken)
    assert "ZeroDivisionError" in refused(parlay("layout", tiny, "--json"), 70)["error"]
    assert parlay("layout", tiny).out == ""
