"""What `check` says of memory: published layouts that ran are clean, the others are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .commands import run

ROOT = Path(__file__).parents[2]
TORCHTITAN = """
model from "llama2-70b"
cluster {{ nodes = 8  node from "dgx-a100" }}
parallel {{ zero = 3 }}
train {{
  seq = 4096  micro_batch = {micro}  global_batch = {batch}
  recompute = {recompute}  stack = "torchtitan"
}}
"""
FOLDED = """
model from "llama3-70b" {{
  experts {{ count = 8, top_k = 2, ffn = 28672, capacity = 1.0 }}
}}
cluster {{ nodes = 32  node from "dgx-h100" }}
parallel {{ {parallel} }}
train {{ seq = 4096  micro_batch = 1  global_batch = 256  stack = "megatron" }}
"""


def codes(folder: Path, text: str) -> list[str]:
    """The errors and warnings about memory."""
    document = json.loads(run(folder, text, "check", "--json").stdout)
    told = document["files"][0]["diagnostics"]
    found = [each for each in told if each["code"].startswith("M") and each["severity"] != "note"]
    return [each["code"] for each in found]


@pytest.mark.parametrize(
    "text",
    [
        # torchtitan's performance page, 64 A100s: OOM at two sequences a GPU.
        TORCHTITAN.format(micro=2, batch=128, recompute="full(every = 2)"),
        # arXiv:2504.14960, tables 2 to 5, 256 H100s: OOM under FSDP, and under TP, EP and DP.
        FOLDED.format(parallel="tp = 8  ep = 8  zero = 1"),
    ],
)
def test_what_ran_out_of_memory_is_told(text: str, tmp_path: Path) -> None:
    assert codes(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        TORCHTITAN.format(micro=1, batch=64, recompute="full(every = 2)"),
        TORCHTITAN.format(micro=2, batch=128, recompute="full"),
        *(path.read_text() for path in sorted((ROOT / "examples").glob("*/*.par"))),
    ],
)
def test_what_ran_is_clean(text: str, tmp_path: Path) -> None:
    assert not codes(tmp_path, text)
