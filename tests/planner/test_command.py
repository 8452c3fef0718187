"""`parlay plan`: what it prints, its JSON, what it writes, and what it refuses."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from parlay import compiler
from parlay.compiler.checks import all_rules, page_of
from parlay.compiler.cli import Objective
from parlay.compiler.planner import OBJECTIVES
from parlay.compiler.planner.asking import PEAK, judges

OPEN = """# a small cluster
model from "llama3-8b" { layers = 8 }
cluster { nodes = 2  node from "dgx-h100" }  # two of them
parallel {
  tp = auto in [1, 2, 16]   # within a node
  pp = auto <= 2
  zero = 1
}
train { seq = 4096  micro_batch = auto <= 2  global_batch = 64  steps = 1 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "open.par"
    path.write_text(OPEN)
    return path


def test_json_counts_every_layout_and_agrees_with_the_ledger(
    parlay: Any, file: Path, tmp_path: Path
) -> None:
    told = json.loads(parlay("plan", file, "--json").out)
    assert told["version"] == 1
    # 3 of tp, 2 of pp where a rank is left for it, 2 of micro_batch.
    assert told["searched"] == 2 * 2 * 2 + 1 * 1 * 2
    assert told["searched"] == told["legal"] + told["outdone"] + sum(told["rejected"].values())
    assert told["rejected"]["N201"] == 2
    best = told["best"]
    figures = {"step_seconds", "peak_bytes", "mfu", "gpus", "proven"}
    assert set(best) == {"tp", "pp", "micro_batch", *figures}
    assert told["exact"] and not told["unsearched"] and told["at_least"] is None
    assert best["proven"] and told["unknown"] == []
    for each in (best, *told["runners_up"], *told["pareto"]):
        text = OPEN.replace("auto in [1, 2, 16]", str(each["tp"]))
        text = text.replace("auto <= 2", str(each["pp"]), 1)
        text = text.replace("auto <= 2", str(each["micro_batch"]))
        fixed = tmp_path / "fixed.par"
        fixed.write_text(text)
        book = json.loads(parlay("ledger", fixed, "--json").out)["files"][0]["phases"][0]
        assert book["time"]["step_seconds"] == each["step_seconds"]
        assert book["memory"]["peak_bytes"] == each["peak_bytes"]
        assert book["time"]["mfu"] == pytest.approx(each["mfu"], rel=1e-12)
    assert best["step_seconds"] == min(each["step_seconds"] for each in told["pareto"])
    assert told["fewest_gpus"] == 8


def test_write_keeps_comments_and_the_rest(parlay: Any, file: Path) -> None:
    best = json.loads(parlay("plan", file, "--json").out)["best"]
    assert parlay("plan", file, "--write").status == 0
    after = OPEN.replace("auto in [1, 2, 16]", str(best["tp"]))
    after = after.replace("auto <= 2", str(best["pp"]), 1)
    after = after.replace("auto <= 2", str(best["micro_batch"]))
    assert file.read_text() == after
    assert parlay("check", file).status == 0
    # Now nothing is open.
    again = parlay("plan", file)
    assert again.status == 1
    assert "nothing is open" in again.err


def test_tables_say_how_the_others_lost(parlay: Any, file: Path) -> None:
    ended = parlay("plan", file)
    assert ended.status == 0
    for words in ("layouts in", "N201", "tensor parallelism leaves the fast domain", "peak"):
        assert words in ended.out
    assert "fewest GPUs, on whole nodes: 8" in ended.out


PHASES = (
    OPEN
    + """phase "long" {
  parallel { cp = auto <= 4 }  # rings
  train { seq = 64Ki, global_batch = 16 }
}
phase "wide" {
  cluster { nodes = 4 }
  budget {}
}
phase "fixed" { parallel { tp = 2, pp = 1 }, train { micro_batch = 1 } }
"""
)


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    path = tmp_path / "phases.par"
    path.write_text(PHASES)
    return path


def test_every_phase_is_planned_by_itself(parlay: Any, phases: Path, file: Path) -> None:
    told = json.loads(parlay("plan", phases, "--json").out)
    assert [each["phase"] for each in told["phases"]] == ["main", "long", "wide"]
    alone = json.loads(parlay("plan", file, "--json").out)
    first = told["phases"][0]
    for name in ("best", "pareto", "searched", "rejected", "fewest_gpus"):
        assert told[name] == first[name] == alone[name]
    assert first["best"]["gpus"] == 16 and told["phases"][2]["best"]["gpus"] == 32
    for name, each in zip(("main", "long", "wide"), told["phases"], strict=True):
        one = json.loads(parlay("plan", phases, "--json", "--phase", name).out)
        assert one["best"] == each["best"] and len(one["phases"]) == 1
    loads = [(each["from"], each["to"]) for each in told["loads"]]
    assert loads == [("main", "long"), ("long", "wide"), ("wide", "fixed")]
    assert "main -> long: " in parlay("plan", phases).out


def test_writing_puts_each_phase_where_it_stands(parlay: Any, phases: Path) -> None:
    told = json.loads(parlay("plan", phases, "--json").out)
    main, long, wide = (each["best"] for each in told["phases"])
    assert parlay("plan", phases, "--write").status == 0
    text = phases.read_text()
    for comment in ("# a small cluster", "# within a node", "# rings"):
        assert comment in text
    assert f"parallel {{ cp = {long['cp']}" in text
    assert text.partition('phase "long"')[0].count("auto") == 0
    # The ledger of what was written is the plan's, phase by phase; and the notes are the loads.
    books = json.loads(parlay("ledger", phases, "--json").out)["files"][0]["phases"]
    for book, best in zip(books, (main, long, wide), strict=False):
        assert book["time"]["step_seconds"] == best["step_seconds"]
        assert book["memory"]["peak_bytes"] == best["peak_bytes"]
    notes = json.loads(parlay("check", phases, "--json").out)["files"][0]["diagnostics"]
    resharding = [each for each in notes if each["code"] == "L236"]
    assert len(resharding) == sum(each["reshards"] for each in told["loads"]) > 0


def test_one_phase_is_written_alone(parlay: Any, phases: Path) -> None:
    best = json.loads(parlay("plan", phases, "--json", "--phase", "wide").out)["best"]
    assert parlay("plan", phases, "--write", "--phase", "wide").status == 0
    before, _, after = phases.read_text().partition('phase "wide" {')
    assert before == PHASES.partition('phase "wide" {')[0]
    for name in ("tp", "pp"):
        assert f"{name} = {best[name]}" in after
    assert f"  train {{ micro_batch = {best['micro_batch']} }}\n" in after


def test_asserts_are_constraints(parlay: Any, file: Path) -> None:
    free = json.loads(parlay("plan", file, "--json").out)
    assert free["best"]["tp"] == 1
    file.write_text(OPEN + "assert memory.peak <= 40GiB\nassert parallel.tp > 1\n")
    told = json.loads(parlay("plan", file, "--json").out)
    assert told["best"]["tp"] == 2
    assert told["best"]["peak_bytes"] <= 40 * 2**30
    assert told["rejected"]["assert"] >= 1
    assert told["best"]["step_seconds"] > free["best"]["step_seconds"]


def test_a_target_refuses_what_it_cannot_express(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "schedule.par"
    path.write_text(
        'model from "llama3-8b" { layers = 8 }\ncluster { node from "dgx-h100" }\n'
        "parallel { tp = 2  pp = 2  schedule = auto }\n"
        "train { seq = 4096  micro_batch = 1  global_batch = 64  steps = 1 }\n"
        'target "megatron" { options { mock_data = on } }\n'
    )
    free = json.loads(parlay("plan", path, "--json", "--top", "20").out)
    names = {each["schedule"] for each in (free["best"], *free["runners_up"])}
    assert {"zbv", "one_f_one_b", "interleaved(chunks = 4)"} <= names
    bound = json.loads(parlay("plan", path, "--json", "--top", "20", "-t", "megatron").out)
    names = {each["schedule"] for each in (bound["best"], *bound["runners_up"])}
    assert "zbv" not in names
    assert "interleaved(chunks = 4)" in names
    assert any(code.startswith("B") for code in bound["rejected"])


def test_no_legal_layout(parlay: Any, file: Path) -> None:
    file.write_text(OPEN + "assert memory.peak <= 1GiB\n")
    before = file.read_text()
    ended = parlay("plan", file, "--write")
    assert ended.status == 1
    assert "no layout is legal" in ended.out
    assert "memory.peak <= 1GiB" in ended.out
    assert file.read_text() == before


def test_what_stands_in_an_import_is_not_written(parlay: Any, tmp_path: Path) -> None:
    (tmp_path / "base.par").write_text("parallel { tp = auto <= 2 }\n")
    path = tmp_path / "job.par"
    path.write_text(
        'import "base.par"\nmodel from "llama3-8b" { layers = 8 }\n'
        'cluster { node from "dgx-h100" }\n'
        "train { seq = 4096  micro_batch = 1  global_batch = 64  steps = 1 }\n"
    )
    ended = parlay("plan", path, "--write")
    assert ended.status == 1
    assert "parallel.tp = " in ended.err
    assert (tmp_path / "base.par").read_text() == "parallel { tp = auto <= 2 }\n"


def test_errors_come_first(parlay: Any, file: Path) -> None:
    file.write_text(OPEN.replace("zero = 1", "zero = 7"))
    ended = parlay("plan", file)
    assert ended.status == 1
    assert "error[" in ended.err
    assert ended.out == ""


def test_a_space_too_large_is_told_at_once(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "wide.par"
    path.write_text(
        'model from "deepseek-v3"\ncluster { nodes = 360  node from "dgx-h100" }\n'
        "parallel { tp = auto  pp = auto  cp = auto  ep = auto  etp = auto  schedule = auto\n"
        "  order = auto  zero = auto  shard = auto  stages = auto }\n"
        "train { seq = 8192  micro_batch = auto  global_batch = 2880  steps = 1\n"
        "  recompute = auto }\n"
    )
    ended = parlay("plan", path)
    assert ended.status == 1
    assert "combinations, more than 100,000: say more" in ended.err


def test_a_search_that_ends_early_tells_what_it_left(
    parlay: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = import_module("parlay.compiler.planner.plan")
    whole = json.loads(parlay("plan", file, "--json").out)
    monkeypatch.setattr(planned, "MOST", 4)
    monkeypatch.setattr(planned, "WHOLE", 4)
    told = json.loads(parlay("plan", file, "--json").out)
    assert not told["exact"] and told["unsearched"] > 0
    assert told["searched"] + told["unsearched"] == whole["searched"]
    assert told["at_least"]["step_seconds"] <= whole["best"]["step_seconds"]
    known = {(each["field"], each["value"]) for each in whole["by_value"]}
    unproven = {(each["field"], each["value"]) for each in told["by_value"] if not each["proven"]}
    unknown = {(each["field"], each["value"]) for each in told["unknown"]}
    assert unproven | unknown and not {(e["field"], e["value"]) for e in told["never"]} & known
    shown = parlay("plan", file).out
    assert "not exact: " in shown and "were not looked into" in shown


def test_every_rule_that_tells_errors_judges(parlay: Any, tmp_path: Path) -> None:
    """A rule that the planner took for one that only warns would let layouts through."""
    # `allow` is judged of the text, once for a file.
    judged = {rule.CODE for rule in judges()} | {PEAK, "T290", "T291"}
    asked = 0
    for rule in all_rules():
        path = tmp_path / "example.par"
        path.write_text(page_of(rule).example)
        told = json.loads(parlay("check", path, "--json").out)["files"][0]["diagnostics"]
        if rule.CODE in {each["code"] for each in told if each["severity"] == "error"}:
            asked += 1
            assert rule.CODE in judged
    assert asked > 30


def test_the_objectives_are_those_of_the_command(tmp_path: Path) -> None:
    assert [each.value for each in Objective] == list(OBJECTIVES)
    with pytest.raises(ValueError, match="fastest"):
        compiler.plan(tmp_path / "a.par", objective="fastest", text=OPEN)
