"""Documents for tools: never over what somebody else wrote, and the ledger of a target."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = """
model from "llama3-8b"
cluster { node from "dgx-h100" }
parallel { tp = 2, pp = 2, zero = 1 }
train { seq = 4Ki, micro_batch = 1, global_batch = 64 }
"""
SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}
COLUMNS = "time   algbw   busbw #wrong"
LOG = f"""\
# nccl-tests version 2.17.8 nccl-headers=23004 nccl-library=23004
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)
#
# Using devices
#  Rank  0 Group  0 Pid      1 on      node0 device  0 [0000:4e:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid      2 on      node0 device  1 [0000:4f:00] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     {COLUMNS}     {COLUMNS}
  1073741824  268435456  float  sum  -1  5000.0  214.75  214.75  0  5000.0  214.75  214.75  0
# Out of bounds values : 0 OK
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.par"
    path.write_text(JOB)
    return path


@pytest.fixture
def asked(job: Path, tmp_path: Path) -> dict[str, list[Any]]:
    log = tmp_path / "all_reduce_perf.log"
    log.write_text(LOG)
    return {
        "timeline": ["timeline", job, "--microbatches", 8],
        "calibrate": ["calibrate", "--from", log],
    }


@pytest.mark.parametrize("command", ["timeline", "calibrate"])
def test_only_its_own_document_is_replaced(
    parlay: Any, asked: dict[str, list[Any]], job: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "made" / "document.json"
    first = parlay(*asked[command], "-o", out)
    assert first.status == 0, first.err
    made = out.read_bytes()
    json.loads(made)
    assert parlay(*asked[command], "-o", out).status == 0
    for path in (job, tmp_path / "mine.json"):
        text = path.read_bytes() if path == job else b'{"made_by": "me"}\n'
        path.write_bytes(text)
        ended = parlay(*asked[command], "-o", path)
        assert (ended.status, ended.out) == (1, "")
        assert f"was not written by `parlay {command}`" in ended.err
        assert path.read_bytes() == text
    assert parlay(*asked[command], "-o", tmp_path / "mine.json", "--force").status == 0
    assert (tmp_path / "mine.json").read_bytes() == made
    assert {path.name for path in out.parent.iterdir()} == {"document.json"}, "nothing is left"


@pytest.mark.parametrize("command", ["timeline", "calibrate"])
def test_what_stands_in_the_way(
    parlay: Any, asked: dict[str, list[Any]], job: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere.json")
    for out in (tmp_path, job / "under.json", tmp_path / "link.json"):
        ended = parlay(*asked[command], "-o", out, "--force")
        assert ended.status == 1
        assert "cannot be written" in ended.err
    assert job.read_text() == JOB
    assert not (tmp_path / "elsewhere.json").exists()


def test_the_ledger_of_a_target(parlay: Any, job: Path) -> None:
    def step(*options: str) -> float:
        ended = parlay("ledger", job, "--json", *options)
        assert ended.out, ended.err
        phase = json.loads(ended.out)["files"][0]["phases"][0]
        seconds: float = phase["time"]["step_seconds"]
        return seconds

    plain, text = step(), job.read_text()
    assert step("--target", "torch") == plain
    megatron = step("--target", "megatron")
    assert megatron != plain
    job.write_text(text.replace("seq =", 'stack = "megatron", seq ='))
    assert step() == step("--target", "torch") == megatron, "the file's word stands"


def test_what_a_target_refuses_stands_beside_its_ledger(parlay: Any, job: Path) -> None:
    ended = parlay("ledger", job, "--target", "deepspeed")
    assert ended.status == 1
    assert "error[B340]: target deepspeed cannot express `tp = 2`" in ended.err
    assert "8.03B parameters" in ended.out
    assert parlay("ledger", job, "--target", "nothing").status == 2


# ── No room ───────────────────────────────────────────────────────────────────

PARLAY = [sys.executable, "-m", "parlay.compiler.cli"]


def no_files() -> None:
    """As on a full disk: a file may be made, and no byte goes into it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize(
    "command",
    [
        ["init", "made"],
        pytest.param(["import", "hf", "hf", "-o", "made.par"], marks=pytest.mark.slow),
        pytest.param(["timeline", "job.par", "-o", "made.json"], marks=pytest.mark.slow),
        pytest.param(["report", "job.par", "-o", "made.html"], marks=pytest.mark.slow),
        ["report", "job.par", "-o", "new/made/made.html"],
    ],
    ids=lambda command: command[0],
)
def test_nothing_half_written_is_left(job: Path, command: list[str]) -> None:
    (job.parent / "hf").mkdir()
    (job.parent / "hf" / "config.json").write_text(json.dumps(SMALL))
    before = set(job.parent.iterdir())
    ended = subprocess.run(
        [*PARLAY, *command], cwd=job.parent, capture_output=True, text=True, preexec_fn=no_files
    )
    assert ended.returncode == 1, ended.stderr
    assert "cannot be written: file too large" in ended.stderr.lower()
    assert set(job.parent.iterdir()) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_an_output_that_takes_no_more_is_no_fault_of_its_own(job: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*PARLAY, "ledger", job], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr == "parlay: the output cannot be written: No space left on device\n"


# ── What others made ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "/dev/null", "folder", "gone"])
def test_what_is_no_file_keeps_nobody_waiting(parlay: Any, job: Path, what: str) -> None:
    place = job.parent / what
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    for command in (["compare", job, place], ["calibrate", "--from", place]):
        ended = parlay(*command)
        assert (ended.status, ended.out) == (1, "")
        assert "is no plain file" in ended.err or "cannot be read" in ended.err
