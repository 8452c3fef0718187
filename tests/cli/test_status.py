"""Exit statuses, colour, closed pipes: what scripts see of the command."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PARLAY = [sys.executable, "-m", "parlay.compiler.cli"]


# ── 0 and 1 ───────────────────────────────────────────────────────────────────


def test_a_clean_file(parlay: Any, tiny: Path) -> None:
    ended = parlay("check", tiny)
    assert (ended.status, ended.err) == (0, "")
    assert "error" not in ended.out


def test_notes_and_warnings_do_not_fail(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("parallel { tp = auto }")
    ended = parlay("check", path)
    assert ended.status == 0
    assert "note[T114]" in ended.out


@pytest.mark.parametrize("command", ["check", "layout", "run", "verify"])
def test_a_missing_file(parlay: Any, tmp_path: Path, command: str) -> None:
    ended = parlay(command, tmp_path / "missing.par")
    assert ended.status == 1
    assert "error[P001]" in ended.out + ended.err


@pytest.mark.parametrize("command", ["run", "verify"])
def test_open_degrees_stop_what_needs_them(parlay: Any, tmp_path: Path, command: str) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model from "llama3.2-1b"\ncluster { node from "laptop" }\n'
        "parallel { tp = auto }\n"
        "train { seq = 128, micro_batch = 1, global_batch = 8, steps = 1 }\n"
    )
    ended = parlay(command, path)
    assert ended.status == 1
    assert f"`parlay {command}` needs a value for `parallel.tp`" in ended.err


@pytest.mark.parametrize("command", ["layout", "ledger", "diff", "compare", "report"])
def test_a_file_of_one_block_is_too_little(parlay: Any, tmp_path: Path, command: str) -> None:
    """No rule has anything against it, so the command says what it needs."""
    path = tmp_path / "job.par"
    path.write_text('model from "llama3-8b"\nparallel { tp = 2 }\n')
    assert parlay("check", path).status == 0
    second = {"diff": [path], "compare": [tmp_path / "metrics.jsonl"]}.get(command, [])
    ended = parlay(command, path, *second)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"parlay: {path}: ") and "cluster" in ended.err


def test_the_same_file_twice_is_told_once(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("parallel { tp = 0 }")
    assert parlay("check", path, path).out.count("error[T106]") == 1


# ── 2: wrong usage ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [
        ["chekc"],
        ["check"],
        ["check", "--formatt", "json", "x.par"],
        ["check", "--format", "yaml", "x.par"],
        ["check", "--target", "tortch", "x.par"],
        ["layout", "a.par", "b.par"],
        ["compile", "x.par"],
        ["compile", "x.par", "--target", "nothing"],
        ["run", "x.par", "--steps", "0"],
        ["explain"],
        ["explain", "--field", "parallel.dp"],
        ["catalog", "fabric"],
    ],
)
def test_wrong_usage(parlay: Any, arguments: list[str]) -> None:
    ended = parlay(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert ended.err
    assert "Traceback" not in ended.err


def test_an_unknown_target_names_the_known_ones(parlay: Any) -> None:
    assert "torch" in parlay("check", "--target", "tortch", "x.par").err


def test_a_rank_that_does_not_exist(parlay: Any, tiny: Path) -> None:
    ended = parlay("layout", tiny, "--rank", 8)
    assert (ended.status, ended.out) == (2, "")
    assert "there is no rank 8: 8 ranks, counted from 0" in ended.err


def test_help(parlay: Any) -> None:
    ended = parlay("--help")
    assert ended.status == 0
    for command in ("check", "layout", "explain", "compile", "run", "verify", "catalog"):
        assert f"\n  {command} " in ended.out


def test_the_targets_by_name(parlay: Any, tiny: Path) -> None:
    ended = parlay("compile", tiny, "--target", "list")
    assert ended.status == 0
    assert ended.out.startswith("torch: ")


# ── 70: a fault of Parlay's own ───────────────────────────────────────────────


def broken(*_: object) -> None:
    raise ZeroDivisionError("the layout\nof nothing")


def test_a_fault_is_one_line(parlay: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLAY_TRACEBACK", raising=False)
    monkeypatch.setattr("parlay.compiler.pipeline.check", broken)
    ended = parlay("check", tiny)
    assert ended.status == 70
    assert ended.err.count("\n") == 1
    assert "ZeroDivisionError: the layout" in ended.err
    assert "report" in ended.err


def test_a_fault_with_its_place(parlay: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLAY_TRACEBACK", "1")
    monkeypatch.setattr("parlay.compiler.pipeline.check", broken)
    with pytest.raises(ZeroDivisionError):
        parlay("check", tiny)


# ── Colour ────────────────────────────────────────────────────────────────────


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What a command writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", **os.environ, **variables}
    child = subprocess.Popen([*PARLAY, *arguments], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    read = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            some = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not some:
            break
        read += some
    os.close(ours)
    child.wait(120)
    return read.decode()


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    path = tmp_path / "job.par"
    path.write_text("parallel { tp = 0 }")
    return str(path)


def test_colour_on_a_terminal(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in on_a_terminal("check", wrong)


def test_no_colour_where_it_is_not_wanted(wrong: str) -> None:
    assert "\x1b[" not in on_a_terminal("check", wrong, NO_COLOR="1")


def test_nothing_but_text_where_colour_is_not_wanted(tiny: Path) -> None:
    """Tables are made by rich, which would keep what is bold."""
    assert "\x1b[" not in on_a_terminal("layout", str(tiny), NO_COLOR="1")


def test_json_is_never_coloured(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in on_a_terminal("check", wrong, "--json")


def test_no_colour_in_a_pipe(parlay: Any, wrong: str) -> None:
    assert "\x1b[" not in parlay("check", wrong).out


# ── Whoever reads has gone ────────────────────────────────────────────────────


@pytest.mark.parametrize("more", [[], ["--groups", "--json"]])
def test_a_closed_pipe_is_no_fault(tiny: Path, more: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    child = subprocess.run(
        [*PARLAY, "layout", str(tiny), *more], stdout=theirs, stderr=subprocess.PIPE, timeout=60
    )
    os.close(theirs)
    assert child.returncode == 1
    assert child.stderr == b""


def test_a_stream_that_knows_only_ascii(process: Any, tmp_path: Path) -> None:
    path = tmp_path / "größe.par"
    path.write_text('phase "größe → 2" { parallel { tp = 0 } }')
    ended = process("check", path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ended.returncode == 1
    assert "error[T106]" in ended.stdout
    assert "gr\\xf6\\xdfe.par" in ended.stdout
