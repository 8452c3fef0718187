"""`parlay diff`: changes, gates, and whether a checkpoint reshards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.cli import app
from parlay.compiler.commands.gates import Gate, gate
from typer.testing import CliRunner

from .commands import JOB


def diff(folder: Path, a: str, b: str, *gates: str) -> Any:
    """The result of `diff a b --json` with gates."""
    (folder / "a.par").write_text(a)
    (folder / "b.par").write_text(b)
    options = [word for gate in gates for word in ("--fail-if", gate)]
    paths = [str(folder / "a.par"), str(folder / "b.par")]
    return CliRunner().invoke(app, ["diff", *paths, "--json", *options])


def phase(result: Any) -> Any:
    """The first phase of the document."""
    return json.loads(result.stdout)["phases"][0]


def test_nothing_changes(tmp_path: Path) -> None:
    result = diff(tmp_path, JOB, JOB, "memory.peak > +0%")
    assert result.exit_code == 0
    assert phase(result)["changes"] == []
    assert phase(result)["checkpoint"] == {"loads": True, "reshards": False, "why": []}


def test_another_layout(tmp_path: Path) -> None:
    result = diff(tmp_path, JOB, JOB.replace("tp = 8", "tp = 4  pp = 2"))
    assert result.exit_code == 0
    found = {each["name"]: each for each in phase(result)["changes"]}
    assert (found["parallel.tp"]["a"], found["parallel.tp"]["b"]) == ("8", "4")
    assert {each["part"] for each in found.values()} == {
        *("file", "groups", "memory", "communication", "time and cost")
    }
    peak = found["memory.peak"]
    assert peak["relative"] == pytest.approx(peak["b"] / peak["a"] - 1)
    checkpoint = phase(result)["checkpoint"]
    assert checkpoint["loads"] and checkpoint["reshards"]
    assert {"tp 8 -> 4", "pp 1 -> 2"} <= set(checkpoint["why"])


@pytest.mark.parametrize(
    ("change", "reshards"),
    [
        (("recompute = full", "recompute = none"), False),
        (("global_batch = 64", "global_batch = 128"), False),
        (("nodes = 2", "nodes = 4"), True),
        (("zero = 1", "zero = 0"), True),
        (("zero = 1", "zero = 2"), False),
        (("zero = 1", "zero = 3"), True),
        (("zero = 1", "zero = 1  vocab_multiple = 7"), True),
    ],
)
def test_resharding(change: tuple[str, str], reshards: bool, tmp_path: Path) -> None:
    found = phase(diff(tmp_path, JOB, JOB.replace(*change)))["checkpoint"]
    assert found["loads"]
    assert found["reshards"] is reshards, found


def test_another_model_does_not_load(tmp_path: Path) -> None:
    other = JOB.replace('"llama3-8b"', '"llama3-8b" { ffn = 8192 }')
    found = phase(diff(tmp_path, JOB, other))["checkpoint"]
    assert not found["loads"]
    assert any("14336" in why and "8192" in why for why in found["why"])


@pytest.mark.parametrize(
    ("gate", "fails"),
    [
        ("memory.peak > +2%", True),
        ("memory.peak > +900%", False),
        ("memory.peak > +1GB", True),
        ("memory.peak > 1GB", True),
        ("memory.peak > 1TB", False),
        ("memory.peak < -2%", False),
        ("throughput.mfu >= +0.1%", True),
        ("throughput.mfu > 99%", False),
        ("run.days != +0", True),
    ],
)
def test_gates(gate: str, fails: bool, tmp_path: Path) -> None:
    result = diff(tmp_path, JOB, JOB.replace("recompute = full", "recompute = none"), gate)
    assert result.exit_code == (1 if fails else 0), result.output
    [told] = json.loads(result.stdout)["fail_if"]
    assert told["text"] == gate and told["fails"] is fails


def test_a_share_changes_relatively(tmp_path: Path) -> None:
    result = diff(
        tmp_path, JOB, JOB.replace("recompute = full", "recompute = none"), "throughput.mfu < -1%"
    )
    change = next(c for c in phase(result)["changes"] if c["name"] == "throughput.mfu")
    [told] = json.loads(result.stdout)["fail_if"]
    assert told["value"] == pytest.approx(change["relative"])


@pytest.mark.parametrize(
    "gate", ["memory.paek > 2%", "memory.peak", "memory.peak > 3s", "memory.peak > two", "> 3"]
)
def test_a_gate_that_cannot_be_read_is_wrong_usage(gate: str, tmp_path: Path) -> None:
    assert diff(tmp_path, JOB, JOB, gate).exit_code == 2


def test_phases_meet_by_name(tmp_path: Path) -> None:
    result = diff(tmp_path, JOB, JOB + 'phase "long" { train { seq = 4Ki } }')
    found = json.loads(result.stdout)["phases"]
    assert [(each["name"], each["only"]) for each in found] == [("main", None), ("long", "b")]


def test_a_broken_file_has_no_ledger(tmp_path: Path) -> None:
    assert diff(tmp_path, JOB, JOB.replace("tp = 8", "tp = 3")).exit_code == 1


def test_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.par").write_text(JOB)
    (tmp_path / "b.par").write_text(JOB.replace("tp = 8", "tp = 4"))
    paths = [str(tmp_path / "a.par"), str(tmp_path / "b.par")]
    shown = CliRunner().invoke(app, ["diff", *paths, "--fail-if", "memory.peak > +2%"]).stdout
    assert "parallel.tp" in shown and "checkpoint: loads, resharded (tp 8 -> 4" in shown
    assert "fail if memory.peak > +2%: holds" in shown


def test_a_figure_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.par").write_text(JOB)
    path = str(tmp_path / "a.par")
    found = CliRunner().invoke(app, ["diff", path, path, "--fail-if", "goodput < 10%"])
    assert found.exit_code == 1
    assert "fail if goodput < 10%: there is no such figure to hold" in found.stdout


def test_days_are_a_number_or_a_time() -> None:
    in_words, plain = gate("run.days > +30d"), gate("run.days > +30")
    assert isinstance(in_words, Gate) and isinstance(plain, Gate)
    assert in_words.limit == plain.limit == 30
    assert isinstance(gate("time.step > 30"), str)
