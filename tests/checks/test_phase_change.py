"""L235 and L236: each phase is held against the one before it, not against the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.dsl.diagnostics import Diagnostic

JOB = """
model from "llama3.2-3b"
cluster {{ node from "dgx-h100", nodes = 2 }}
parallel {{ tp = 8, dp = 2, zero = 1 }}
train {{ seq = 8Ki, micro_batch = 1, global_batch = 64 }}
{phases}
"""


def told(folder: Path, *phases: str) -> list[Diagnostic]:
    path = folder / "run.par"
    blocks = [f'phase "p{number}" {{ {body} }}' for number, body in enumerate(phases, 1)]
    path.write_text(JOB.format(phases="\n".join(blocks)))
    found = pipeline.check(path).diagnostics
    return [each for each in found if each.code in ("L235", "L236")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("parallel { tp = 4, dp = 4 }", {"tp 8 -> 4"}),
        ("parallel { dp = 1, pp = 2 }", {"pp 1 -> 2"}),
        ("parallel { zero = 3 }", {"zero 1 -> 3"}),
        ("parallel { zero = 0 }", {"zero 1 -> 0"}),
        ("cluster { nodes = 4 } parallel { dp = 4 }", {"state over 2 -> 4 ranks"}),
        ("parallel { vocab_multiple = 1024 }", {"vocabulary padded to 128256 -> 131072 rows"}),
    ],
)
def test_what_is_cut_anew(body: str, words: set[str], tmp_path: Path) -> None:
    (found,) = told(tmp_path, body)
    assert found.code == "L236"
    said = [label.text for label in found.labels]
    assert all(any(text.startswith(each) for text in said) for each in words), said
    assert "resharding load of 45 GB" in found.message  # 3.21 G parameters, 14 bytes each


@pytest.mark.parametrize(
    "body",
    [
        "train { global_batch = 128 }",
        "train { seq = 16Ki }",
        "parallel { zero = 2 }",
        "parallel { order = [tp, cp, pp, dp] }",
        "train { recompute = full }",
    ],
)
def test_what_loads_as_it_is(body: str, tmp_path: Path) -> None:
    assert told(tmp_path, body) == []


def test_each_phase_follows_the_last_one(tmp_path: Path) -> None:
    back_and_forth = told(tmp_path, "parallel { tp = 4, dp = 4 }", "train { seq = 16Ki }")
    assert [found.notes[-1] for found in back_and_forth] == [
        'in phase "p1"',
        'in phase "p2"',  # laid over the file, whose tp is 8 again
    ]
    assert told(tmp_path, "train { seq = 16Ki }", "train { seq = 32Ki }") == []


def test_ranks_are_counted(tmp_path: Path) -> None:
    (found,) = told(tmp_path, "cluster { nodes = 4 } parallel { dp = 4 }")
    assert "16 ranks wrote the checkpoint, 32 ranks read it" in found.notes


def test_another_model_is_an_error_at_each_change(tmp_path: Path) -> None:
    (found,) = told(tmp_path, "model { ffn = 16384 }")
    assert found.code == "L235"
    assert any("8192" in words and "16384" in words for words in found.notes)
    assert told(tmp_path, "model { ffn = 16384 }", "model { ffn = 16384 }") == [found]


def test_a_phase_that_comes_back_is_not_the_odd_one(tmp_path: Path) -> None:
    (found,) = told(tmp_path, "model { ffn = 16384 }", "train { seq = 16Ki }")
    assert found.notes[-1] == 'in phase "p1"'
    twice = told(tmp_path, "model { ffn = 16384 }", "model { ffn = 4096 }")
    assert [one.notes[-1] for one in twice] == ['in phase "p1"', 'in phase "p2"']


def test_a_broken_phase_is_not_compared(tmp_path: Path) -> None:
    assert told(tmp_path, "parallel { tp = 7 }", "train { seq = 16Ki }") == []
