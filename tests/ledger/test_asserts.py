"""Asserts over the ledger's values: what they compare, what is told, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.commands.explain import sections
from parlay.compiler.ledger.codes import CODES
from parlay.compiler.spec.asserting import VALUES

from .commands import JOB, phases, run


def told(folder: Path, text: str) -> list[dict[str, Any]]:
    """The diagnostics of `parlay check`."""
    document = json.loads(run(folder, text, "check", "--json").stdout)
    found: list[dict[str, Any]] = document["files"][0]["diagnostics"]
    return [each for each in found if each["severity"] == "error"]


@pytest.mark.parametrize(
    "claim",
    [
        "memory.peak <= 90% * gpu.memory",
        "memory.peak < 60GiB + 1GB",
        "memory.activations < memory.peak",
        "memory.optimizer < 12.1GB * model_size / 16",
        "pipeline.bubble == 0",
        "pipeline.bubble_over_ideal <= 10%",
        "throughput.mfu > 0.1",
        "throughput.hfu > throughput.mfu",
        "throughput.tokens == throughput.tokens_per_gpu * cluster.gpus",
        "communication.tp.bytes > 1GB",
        "communication.ep.bytes == 0GB",
        "time.step < 5min",
        "time.exposed_communication + time.compute == time.step",
        "run.days > 1",
        "run.days > 1d",
        "run.gpu_hours == run.days * 24 * cluster.gpus",
        "run.cost == 2 * run.gpu_hours",
        "max(run.days, 3) >= 3",
        "100GB > memory.peak",
    ],
)
def test_holds(claim: str, tmp_path: Path) -> None:
    text = f"let model_size = 8.0303\n{JOB}assert {claim}\n"
    result = run(tmp_path, text, "ledger", "--json")
    [verdict] = phases(result)[0]["asserts"]
    assert result.exit_code == 0, result.output
    assert verdict["holds"] and verdict["text"] == claim


def test_a_failure_names_both_values_their_places_and_the_formula(tmp_path: Path) -> None:
    text = f"{JOB}assert memory.peak <= 10% * gpu.memory\n"
    [found] = told(tmp_path, text)
    assert found["code"] == "A201"
    assert found["message"].startswith("`memory.peak <= 10% * gpu.memory` does not hold: ")
    assert " > 8.55 GB" in found["message"]
    assert (found["line"], found["column"]) == (6, 8)
    assert [label["text"] for label in found["labels"]][1] == "8.55 GB"
    [note] = found["notes"]
    assert note.startswith("memory.peak = stage 0, ") and "weights" in note and " + " in note
    result = run(tmp_path, text, "ledger", "--json")
    assert result.exit_code == 1
    [verdict] = phases(result)[0]["asserts"]
    assert not verdict["holds"]
    assert verdict["value"] == phases(result)[0]["memory"]["peak_bytes"]


def test_the_table_says_which_hold(tmp_path: Path) -> None:
    claims = "assert run.days > 1\nassert memory.peak < 1GB\n"
    result = run(tmp_path, JOB + claims, "ledger")
    assert result.exit_code == 1
    assert "assert run.days > 1: holds" in result.stdout
    assert "assert memory.peak < 1GB: fails" in result.stdout


@pytest.mark.parametrize(
    ("claim", "code", "words"),
    [
        ("memory.paek < 1GB", "T011", "`memory.peak`"),
        ("comunication.tp.bytes < 1GB", "T011", "`communication.tp.bytes`"),
        ("memory.peak < 3", "T103", "data < count"),
        ("time.step + memory.peak < 3s", "T103", "time + data"),
        ("run.days < 3GB", "T103", "count < data"),
        ("goodput > 90%", "T012", "gpu_mtbf"),
    ],
)
def test_what_is_wrong_with_an_assert(claim: str, code: str, words: str, tmp_path: Path) -> None:
    [found] = told(tmp_path, f"{JOB}assert {claim}\n")
    assert found["code"] == code
    said = [*found["help"], *found["notes"], *(label["text"] for label in found["labels"])]
    assert any(words in each for each in said)


def test_names_are_told_without_a_layout(tmp_path: Path) -> None:
    codes = [each["code"] for each in told(tmp_path, "assert memory.paek < 1GB\n" + JOB + "}")]
    assert "T011" in codes


def test_a_let_wins_over_a_figure(tmp_path: Path) -> None:
    result = run(tmp_path, f"let goodput = 3\n{JOB}assert goodput == 3\n", "ledger", "--json")
    assert result.exit_code == 0
    assert phases(result)[0]["asserts"][0]["value"] == 3


def test_asserts_wait_for_other_errors(tmp_path: Path) -> None:
    text = JOB.replace("tp = 8", "tp = 7") + "assert memory.peak < 1GB\n"
    assert "A201" not in {each["code"] for each in told(tmp_path, text)}


def test_every_phase_is_asked(tmp_path: Path) -> None:
    text = JOB + 'assert time.step < 20s\nphase "long" { train { global_batch = 1024 } }\n'
    result = run(tmp_path, text, "ledger", "--json")
    assert [phase["asserts"][0]["holds"] for phase in phases(result)] == [True, False]
    [found] = told(tmp_path, text)
    assert 'in phase "long"' in found["notes"]


@pytest.mark.parametrize(
    ("claim", "mfu"),
    [
        ("throughput.mfu >= 151.7%", "151.7%"),
        ("throughput.tokens_per_gpu > 1M", ""),
        ("time.step < 1ms", ""),
        ("1.2 <= throughput.mfu", "120.0%"),
    ],
)
def test_faster_than_the_gpu(claim: str, mfu: str, tmp_path: Path) -> None:
    [found] = told(tmp_path, f"{JOB}assert {claim}\n")
    assert found["code"] == "W280" and "an MFU of" in found["message"]
    assert mfu in found["message"]


def test_slow_is_not_faster_than_the_gpu(tmp_path: Path) -> None:
    [found] = told(tmp_path, f"{JOB}assert throughput.mfu < 1%\n")
    assert found["code"] == "A201"


def test_every_name_has_a_value_or_a_reason(tmp_path: Path) -> None:
    from parlay.compiler.ledger.document import ledger
    from parlay.compiler.ledger.values import values

    file = tmp_path / "job.par"
    for text in (JOB, 'model { params = 8B }\ncluster { node from "dgx-h100" }\n'):
        file.write_text(text)
        [phase] = pipeline.load(file).phases
        layout = pipeline.lay_out(phase)
        assert layout is not None
        found = values(ledger(phase, layout))
        assert set(found) == set(VALUES)
        assert all(value.formula for value in found.values())


@pytest.mark.parametrize("code", sorted(CODES))
def test_pages(code: str, tmp_path: Path) -> None:
    parts = {name: "\n".join(lines) for name, lines in sections(CODES[code][1])}
    assert set(parts) == {"What", "Why", "Example", "Instead"}
    assert [each["code"] for each in told(tmp_path, parts["Example"])] == [code]
    assert not told(tmp_path, parts["Instead"])
