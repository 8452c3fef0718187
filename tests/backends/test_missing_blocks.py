"""A file that lacks a block: every target says which, at the file's start, and none falls over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.backends import TARGETS

BLOCKS = {
    "model": 'model from "qwen2.5-7b"',
    "cluster": 'cluster { node from "dgx-h100" }',
    "train": "train { seq = 4Ki, micro_batch = 1, global_batch = 64, steps = 3 }",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("gone", BLOCKS)
def test_the_block_is_named(target: str, gone: str, parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("\n".join(text for name, text in BLOCKS.items() if name != gone) + "\n")
    ended = parlay("compile", path, "-t", target, "-o", tmp_path / "out")
    assert ended.status == 1
    assert f"needs a `{gone}` block\n --> {path}:1:1" in ended.err.replace("  -->", " -->")
    assert not (tmp_path / "out").exists()
    assert f"needs a `{gone}` block" in parlay("check", path, "-t", target).out


@pytest.mark.parametrize("command", ["run", "verify"])
def test_what_runs_needs_a_cluster(command: str, parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(f"{BLOCKS['model']}\n{BLOCKS['train']}\n")
    ended = parlay(command, path)
    assert (ended.status, "target torch needs a `cluster` block" in ended.err) == (1, True)
