"""Every command that refuses a file tells all of its errors, those of the rules too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.checks import codes, page

MISTAKES = Path(__file__).parents[2] / "docs" / "mistakes.par"


COMMANDS: list[tuple[str | Path, ...]] = [
    ("ledger", MISTAKES),
    ("layout", MISTAKES),
    ("compile", "--target", "torch", MISTAKES),
    ("verify", MISTAKES),
    ("run", MISTAKES),
    ("diff", MISTAKES, MISTAKES),
    ("compare", MISTAKES, "metrics.jsonl"),
    ("timeline", MISTAKES, "-o", "trace.json"),
    ("report", MISTAKES, "-o", "page.html"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_both_errors_are_told(
    command: tuple[str | Path, ...], parlay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = parlay(*command)
    assert ended.status == 1
    assert "error[L201]" in ended.err
    assert "error[T002]" in ended.err


# ── Figures of what divides ───────────────────────────────────────────────────

CUT = """
model from "llama3-8b" { layers = 32 }
cluster { node from "dgx-h100" }
parallel { tp = 2, pp = 2, schedule = one_f_one_b }
train { seq = 4Ki, micro_batch = 1, global_batch = 64 }
"""
WRONG = {
    "L202": ("layers = 32", "heads = 33, kv_heads = 33, head_dim = 128"),
    "L205": ("layers = 32", "heads = 30, kv_heads = 10, hidden = 4100"),
    "L210": ("global_batch = 64", "global_batch = 1"),
    "S202": ("one_f_one_b", "interleaved(chunks = 2), zero = 1, dp = 2 }\nlog { every = 1"),
    "S205": ("one_f_one_b", "dualpipe, zero = 1 }\nlog { every = 1"),
}
FIGURES: list[tuple[str | Path, ...]] = [
    ("ledger", "job.par"),
    ("ledger", "job.par", "--json", "--formulas", "--nodes", "1,2"),
    ("timeline", "job.par", "-o", "trace.json"),
    ("diff", "job.par", "good.par"),
    ("diff", "good.par", "job.par", "--json"),
    ("compare", "job.par", "metrics.jsonl"),
]


@pytest.mark.parametrize("command", FIGURES, ids=lambda command: " ".join(map(str, command[:3])))
@pytest.mark.parametrize("code", WRONG)
def test_no_figures_of_what_does_not_divide(
    code: str,
    command: tuple[str, ...],
    parlay: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = CUT.replace(*WRONG[code])
    if code in ("S202", "S205"):
        text = text.replace("global_batch = 64", "global_batch = 6")
    Path("job.par").write_text(text)
    Path("good.par").write_text(CUT.replace("pp = 2", "pp = 2, zero = 1"))
    Path("metrics.jsonl").write_text('{"seconds": 2.0}\n')
    ended = parlay(*command)
    assert ended.status == 1
    assert f"error[{code}]" in ended.err
    if "--json" not in command:
        assert ended.out == ""
    else:
        told = json.loads(ended.out)
        assert not any(each.get("phases") for each in (told, *told["files"]))
        assert code in {one["code"] for each in told["files"] for one in each["diagnostics"]}
    assert not Path("trace.json").exists()


def test_figures_of_what_does_not_fit(parlay: Any, tmp_path: Path) -> None:
    """They are what shows it; the file has an error all the same."""
    path = tmp_path / "job.par"
    path.write_text('model from "llama3-8b"\ncluster { node from "dgx-h100" }\n')
    ended = parlay("ledger", path)
    assert (ended.status, "error[M201]" in ended.err) == (1, True)
    assert "8.03B parameters on 8 GPUs" in ended.out
    assert parlay("diff", path, path).status == 1


@pytest.mark.slow
@pytest.mark.parametrize("code", codes())
def test_every_command_answers_every_mistake(
    code: str, parlay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = page(code)
    assert found is not None
    Path("job.par").write_text(found.example)
    for command in FIGURES[:3]:
        assert parlay(*command).status in (0, 1)
