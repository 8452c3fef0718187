"""What a framework's rule tells names the version that it was read in."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.rules import MODULES, READ_IN

JOB = """
model from "llama3-8b"
cluster {{ node from "dgx-h100", nodes = 2 }}
parallel {{ pp = 2, dp = 8, zero = 2 }}
train {{ seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }}
{target}
"""


@pytest.mark.parametrize(
    ("target", "note"),
    [
        ("", "a rule of DeepSpeed 0.19"),
        ('target "deepspeed" { version = "0.19.8" }', "a rule of DeepSpeed 0.19"),
        (
            'target "deepspeed" { version = "0.1" }',
            "a rule of DeepSpeed 0.19; the file asks for 0.1, which may differ",
        ),
    ],
)
def test_the_version_is_told(target: str, note: str, tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_text(JOB.format(target=target))
    told = [d for d in pipeline.check(path, ("deepspeed",)).diagnostics if d.code == "B501"]
    assert [d.notes[-1] for d in told] == [note]


def test_every_target_with_rules_has_a_version() -> None:
    assert set(MODULES) == set(READ_IN)
