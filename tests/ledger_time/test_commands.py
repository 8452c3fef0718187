"""timeline, compare and calibrate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.commands import calibrate, compare, ledger, timeline

JOB = """
model from "llama2-7b"
cluster { nodes = 2  node from "dgx-h100" }
parallel { pp = 4  zero = 1 }
train { seq = 4096  micro_batch = 1  global_batch = 64  steps = 1 }
"""


@pytest.fixture
def par(tmp_path: Path) -> Path:
    path = tmp_path / "run.par"
    path.write_text(JOB)
    return path


def test_a_trace_opens(par: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.json"
    assert timeline.run(par, out) == 0
    events = json.loads(out.read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"F0", "B15"} <= names
    assert {event["tid"] for event in events} == {0, 1, 2, 3}
    assert "ui.perfetto.dev" in capsys.readouterr().out


def test_a_phase_that_is_not_there(par: Path, tmp_path: Path) -> None:
    assert timeline.run(par, tmp_path / "t.json", phase="other") == 1


def test_predicted_beside_measured(
    par: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    lines = [{"step": i, "seconds": 99.0 if i < 3 else 2.0, "mfu": None} for i in range(9)]
    metrics.write_text("\n".join(map(json.dumps, lines)))
    assert compare.run(par, [metrics], json=True) == 0
    document = json.loads(capsys.readouterr().out)
    (figure,) = document["figures"]
    assert (figure["figure"], figure["measured"], document["steps"]) == ("step", 2.0, 6)
    assert figure["error"] == pytest.approx(figure["predicted"] / 2.0 - 1)


NONE = {
    "empty": "",
    "no steps": "\n\n",
    "no seconds": "{}",
    "no JSON": "no json",
    "a word": '{"seconds": "x"}',
    "a switch": '{"seconds": true}',
    "nothing": '{"seconds": 0}',
    "negative": '{"seconds": -1}',
    "infinite": '{"seconds": 1e999}',
    "not a number": '{"seconds": NaN}',
    "past a float": '{"seconds": 1' + "0" * 400 + "}",
    "many digits": '{"seconds": ' + "9" * 5000 + "}",
    "a list": "[1]",
    "deep": "[" * 100_000,
    "cut short": '{"seconds": 2.0',
    "broken inside": '{"seconds": 2.0}\n{"sec\n{"seconds": 2.0}\n',
    "an escape": '{"seconds": "\\u001b[31m"}',
}


@pytest.mark.parametrize("name", NONE)
def test_metrics_that_are_none(
    par: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(NONE[name])
    assert compare.run(par, [metrics]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"parlay: {metrics}") and len(said.splitlines()) == 1
    metrics.write_bytes(b"\xff\xfe")
    assert compare.run(par, [metrics]) == 1
    assert compare.run(par, [tmp_path / "absent.jsonl"]) == 1


def test_no_peak_no_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, metrics = tmp_path / "run.par", tmp_path / "metrics.jsonl"
    path.write_text(JOB.replace("dgx-h100", "laptop"))
    metrics.write_text('{"seconds": 2.0}\n')
    assert compare.run(path, [metrics]) == 1
    assert timeline.run(path, tmp_path / "trace.json") == 1
    assert capsys.readouterr().err.count("states no peak") == 2


def test_a_run_that_still_writes(
    par: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"seconds": 2.0}\n{"seconds": 4.0}\n{"seco')
    assert compare.run(par, [metrics], json=True) == 0
    assert json.loads(capsys.readouterr().out)["figures"][0]["measured"] == 3.0


# ── Phases ────────────────────────────────────────────────────────────────────

TOKENS = (4096 * 64, 8192 * 64, 4096 * 128)
PHASES = (
    JOB + 'phase "long" { train { seq = 8192 } }\nphase "wide" { train { global_batch = 128 } }\n'
)


def written(path: Path, seconds: float, tokens: int) -> Path:
    lines = [
        {"step": i, "seconds": seconds, "tokens": (i + 1) * tokens, "tokens_per_second": 1.0}
        for i in range(5)
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def ledgers(parlay: Any, path: Path) -> list[dict[str, Any]]:
    phases: list[dict[str, Any]] = json.loads(parlay("ledger", path, "--json").out)["files"][0][
        "phases"
    ]
    return phases


def test_every_phase_is_beside_its_run(tmp_path: Path, parlay: Any) -> None:
    path = tmp_path / "run.par"
    path.write_text(PHASES)
    runs = [written(tmp_path / f"{i}.jsonl", 2.0 + i, tokens) for i, tokens in enumerate(TOKENS)]
    ended = parlay("compare", path, *runs, "--json")
    document = json.loads(ended.out)
    assert [phase["name"] for phase in document["phases"]] == ["main", "long", "wide"]
    steps = [phase["time"]["step_seconds"] for phase in ledgers(parlay, path)]
    assert len(set(steps)) == 3
    for number, phase in enumerate(document["phases"]):
        figures = {each["figure"]: each for each in phase["figures"]}
        assert figures["step"]["predicted"] == steps[number]
        assert figures["step"]["measured"] == 2.0 + number
        assert phase["tokens_per_step"] == dict.fromkeys(("predicted", "measured"), TOKENS[number])
        assert phase["metrics"] == str(runs[number])
    assert document["figures"] == document["phases"][0]["figures"]
    assert document["steps"] == document["phases"][0]["steps"] == 2
    told = parlay("compare", path, *runs).out
    assert [line for line in told.splitlines() if line.startswith("phase")] == [
        f'phase "{name}"' for name in ("main", "long", "wide")
    ]
    assert "of another phase" not in told


def test_one_run_beside_all_phases(tmp_path: Path, parlay: Any) -> None:
    path, metrics = tmp_path / "run.par", written(tmp_path / "m.jsonl", 2.0, TOKENS[1])
    path.write_text(PHASES.replace("global_batch = 128", "global_batch = 192"))
    ended = parlay("compare", path, metrics)
    assert ended.status == 0
    main, long, wide = ended.out.split('phase "')[1:]
    assert "a step of the run has 524,288 tokens, one of this phase 262,144" in main
    assert "another phase" not in long
    assert "one of this phase 786,432" in wide


@pytest.mark.parametrize("count", [2, 4])
def test_as_many_runs_as_phases(tmp_path: Path, parlay: Any, count: int) -> None:
    path, metrics = tmp_path / "run.par", written(tmp_path / "m.jsonl", 2.0, 1)
    path.write_text(PHASES)
    ended = parlay("compare", path, *[metrics] * count)
    assert (ended.status, ended.out) == (2, "")
    assert f"{count} files of metrics for 3 phases" in ended.err


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        ([{"step": 3, "tokens": 400}], 100),
        ([{"step": 0, "tokens": 100}, {"step": 1}], 100),
        ([{"step": 3, "tokens": 401}], None),
        ([{"step": -1, "tokens": 400}], None),
        ([{"step": 3, "tokens": 0}], None),
        ([{"step": 3.0, "tokens": 400}], None),
        ([{}], None),
    ],
)
def test_tokens_of_a_step(lines: list[dict[str, Any]], tokens: int | None) -> None:
    assert compare.tokens_of(lines) == tokens


def test_ranks_beyond_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate.run(ranks=99_999) == 1
    assert "99999 ranks" in capsys.readouterr().err


@pytest.mark.distributed
@pytest.mark.slow
def test_this_machine_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert calibrate.run(ranks=2, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ranks"] == 2
    measured = {row["collective"]: row for row in document["collectives"]}
    assert set(measured) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}
    assert not [row for row in document["collectives"] if "skipped" in row]
    assert document["fields"]["cluster.node.link.bandwidth"] > 0
    assert document["calibration"]["link"]["all_to_all"]["latency"] > 0
    assert document["calibration"]["fp32"]["size"] == 1024


@pytest.mark.distributed
@pytest.mark.slow
def test_from_a_measurement_to_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    out, file = tmp_path / "here.json", tmp_path / "run.par"
    assert calibrate.run(ranks=2, out=out) == 0
    capsys.readouterr()
    file.write_text(
        "model { layers = 4, hidden = 256, heads = 4, vocab = 1024, ffn = 512 }\n"
        'cluster { node from "laptop" { gpus = 2 }, calibration from "here.json" }\n'
        "parallel { tp = 2 }\n"
        "train { seq = 128, micro_batch = 1, global_batch = 4, steps = 1, precision = fp32 }\n"
        'allow N211 "the wires of a busy machine"\n'
    )
    assert ledger.run([file], json=True) == 0
    [phase] = json.loads(capsys.readouterr().out)["files"][0]["phases"]
    assert phase["time"]["step_seconds"] > 0 and phase["time"]["mfu"] is None
    sources = {part: source.partition(",")[0] for part, source in phase["time"]["sources"].items()}
    assert sources["gemm"] == sources["tp"] == sources["optimizer"] == "measured"
    assert {line["source"] for line in phase["communication"]} == {"measured, here.json"}
