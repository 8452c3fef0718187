"""A file whose phases share a model and a cluster, and which is no phase itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = 'model from "llama3-8b"\ncluster { nodes = 2  node from "dgx-h100" }\n'
SHORT = """phase "short" {
  parallel { tp = 2  zero = 1 }
  train { seq = 4Ki  micro_batch = 1  global_batch = 64  steps = 10 }
}
"""
LONG = SHORT.replace("short", "long").replace("seq = 4Ki", "seq = 8Ki").replace("tp = 2", "tp = 4")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.par"
    path.write_text(SHARED + SHORT + LONG)
    return path


def test_only_what_is_trained_is_a_phase(parlay: Any, file: Path) -> None:
    """Sixteen whole copies of the model would not fit, and nobody asked for them."""
    told = parlay("check", file, "--json")
    [found] = json.loads(told.out)["files"]
    assert [each["code"] for each in found["diagnostics"]] == ["L236"]
    for command in ("layout", "ledger"):
        document = json.loads(parlay(command, file, "--json").out)
        phases = document["files"][0]["phases"] if command == "ledger" else document["phases"]
        assert [phase["name"] for phase in phases] == ["short", "long"]


@pytest.mark.parametrize(
    "block", ["parallel { zero = 3 }", "train { seq = 4Ki  micro_batch = 1  global_batch = 64 }"]
)
def test_a_file_that_is_cut_or_trained_is_one(parlay: Any, file: Path, block: str) -> None:
    file.write_text(SHARED + block + "\n" + SHORT)
    document = json.loads(parlay("layout", file, "--json").out)
    assert [phase["name"] for phase in document["phases"]] == ["main", "short"]


def test_the_first_phase_stands_for_the_file(parlay: Any, file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert parlay("timeline", file, "-o", trace).status == 0
    assert trace.is_file()
    told = parlay("compile", file, "--target", "torch", "-o", tmp_path / "out")
    assert told.status == 0, told.err
    for name in ("short", "long"):
        assert (tmp_path / "out" / name / "torch" / "train.py").is_file()


def test_stages_that_hold_alike_are_one_row(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "deep.par"
    path.write_text(
        'model from "llama3.1-405b"\ncluster { nodes = 256  node from "dgx-h100" }\n'
        "parallel { tp = 8  pp = 16  zero = 1  stages = auto  schedule = gpipe }\n"
        "train { seq = 4Ki  micro_batch = 1  global_batch = 64  steps = 10  recompute = full }\n"
    )
    rows = parlay("ledger", path).out.partition("Memory in")[2].partition("Sent by")[0].splitlines()
    spans = [row.split()[0] for row in rows[2:] if row.strip()]
    assert spans == ["15", "1-14", "0"]
