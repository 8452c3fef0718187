"""`parlay check --fix` and `--watch`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.commands.fix import ROUNDS, apply, fixed
from parlay.compiler.commands.watch import watch
from parlay.dsl.diagnostics import Edit
from parlay.dsl.source import Span

pytestmark = pytest.mark.slow

BROKEN = """model from "llama3-8b"
cluster { node from "dgx-h100" }
parallel { tp: 8, dq = auto, sequence_paralel = on }
train { seq = 4 Ki; micro_batch = 1, global_batch = 8 }
"""


def test_all_that_can_be_mended_is(parlay: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_text(BROKEN)
    path.chmod(0o600)
    ended = parlay("check", "--fix", path)
    assert ended.status == 0, ended.out
    text = path.read_text()
    for words in ("tp = 8", "dp = auto", "sequence_parallel = on", "4Ki"):
        assert words in text
    assert f"fixed {path}:3:" in ended.out and "T002" in ended.out
    assert path.stat().st_mode & 0o777 == 0o600
    assert "fixed" not in parlay("check", "--fix", path).out


def test_json_stays_json(parlay: Callable[..., Any], tmp_path: Path) -> None:
    import json

    path = tmp_path / "run.par"
    path.write_text(BROKEN)
    ended = parlay("check", "--fix", "--json", path)
    assert json.loads(ended.out)["summary"]["errors"] == 0
    assert "fixed" in ended.err


def test_a_file_without_fixes_is_not_written(parlay: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_text("parallel { tp = }")
    before = path.stat().st_mtime_ns
    assert parlay("check", "--fix", path).status == 1
    assert path.stat().st_mtime_ns == before
    assert parlay("check", "--fix", tmp_path / "none.par").status == 1


def test_an_imported_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "base.par").write_text("parallel { tq = 8 }")
    (tmp_path / "run.par").write_text('import "base.par"\nparallel { dq = 1 }\n')
    found = fixed(tmp_path / "run.par")
    assert found.after == 'import "base.par"\nparallel { dp = 1 }\n'
    assert [each.code for each in found.applied] == ["T002"]


def test_a_warning_is_not_mended_into_an_error(tmp_path: Path) -> None:
    """The general rules offer ZeRO-1 in a pipeline, which torchtitan does not have."""
    path = tmp_path / "run.par"
    path.write_text(
        'model from "llama3-8b"\ncluster { node from "dgx-h100" }\n'
        "parallel { pp = 4  zero = 3 }\n"
        "train { seq = 4Ki  micro_batch = 1  global_batch = 64  steps = 1 }\n"
    )
    assert [each.code for each in fixed(path).applied] == ["W201"]
    assert fixed(path, ["torchtitan"]).applied == ()


def test_every_example_page_ends(tmp_path: Path) -> None:
    """Fixes never go round, and what is left after them stays."""
    from parlay.compiler import checks

    for number, code in enumerate(checks.codes()):
        page = checks.page(code)
        assert page is not None
        path = tmp_path / f"{number}.par"
        path.write_text(page.example)
        found = fixed(path)
        path.write_text(found.after)
        assert len(found.applied) < 4 * ROUNDS
        assert fixed(path).after == found.after


def test_edits_are_applied_from_the_end() -> None:
    def edit(start: int, end: int, text: str) -> Edit:
        return Edit(Span("", start, end), text)

    assert apply("abcdef", [edit(0, 1, "xx"), edit(2, 4, ""), edit(6, 6, "!")]) == "xxbef!"
    assert apply("ab", [edit(1, 1, "-"), edit(1, 1, "-")]) == "a-b"


# ── Watching ──────────────────────────────────────────────────────────────────


def test_a_change_of_an_import_is_seen(tmp_path: Path) -> None:
    one, two = tmp_path / "one.par", tmp_path / "two.par"
    one.write_text("a")
    two.write_text("a")
    seen: list[str] = []

    def once() -> list[Path]:
        seen.append(one.read_text() + two.read_text() if two.exists() else "gone")
        return [one, two]

    def sleep(_: float) -> None:
        match len(seen):
            case 1:
                two.write_text("bb")
            case 2:
                two.unlink()
            case 3:
                two.write_text("c")
            case _:
                raise KeyboardInterrupt

    assert watch([one], once, sleep=sleep) == 0
    assert seen == ["aa", "abb", "gone", "ac"]


def test_watch_ends_cleanly(tmp_path: Path, interruptible: Callable[[], object]) -> None:
    path = tmp_path / "run.par"
    path.write_text("parallel { tq = 8 }")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "parlay.compiler.cli", "check", "--watch", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    assert process.stdout is not None
    while "1 error" not in (line := process.stdout.readline()):
        assert line
    time.sleep(0.1)
    path.write_text("parallel { tp = auto, zz = 8 } # longer")
    while "zz" not in (line := process.stdout.readline()):
        assert line or process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0 and err == ""
