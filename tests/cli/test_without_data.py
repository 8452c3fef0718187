"""A job that names no data: tried in silence, told where GPUs are to train on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

JOB = """model from "llama3-8b"
cluster { node from "NODE" }
parallel { zero = 3 }
train { seq = 512, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
"""


def told(parlay: Any, path: Path, text: str, target: str) -> Any:
    path.write_text(text)
    return parlay("compile", path, "--target", target, "-o", path.parent / "out", "--force")


@pytest.mark.parametrize("target", ["torch", "deepspeed"])
def test_a_note_at_most(parlay: Any, tmp_path: Path, target: str) -> None:
    path, job = tmp_path / "job.par", JOB.replace("NODE", "dgx-h100")
    ended = told(parlay, path, job, target)
    assert ended.status == 0
    assert "note[B302]" in ended.err
    assert (tmp_path / "out" / target / "train.py").is_file()
    for data in ("data { format = text }", 'data { path = "words.txt" }'):
        assert "B302" not in told(parlay, path, f"{job}{data}\n", target).err


def test_not_on_a_laptop(parlay: Any, tmp_path: Path) -> None:
    ended = told(parlay, tmp_path / "job.par", JOB.replace("NODE", "laptop"), "torch")
    assert "B302" not in ended.err
