"""`parlay fmt` on files, links and streams."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

UGLY = "parallel{tp=8}  # cut\r\n\r\n\r\n\r\nlet x=1\r\n"
NEAT = "parallel { tp = 8 }  # cut\n\nlet x = 1\n"


@pytest.fixture
def ugly(tmp_path: Path) -> Path:
    path = tmp_path / "run.par"
    path.write_bytes(UGLY.encode())
    return path


def test_it_writes_canonical_text(parlay: Callable[..., Any], ugly: Path) -> None:
    ended = parlay("fmt", ugly)
    assert (ended.status, ended.err) == (0, "")
    assert ugly.read_bytes() == NEAT.encode()
    assert ended.out == f"formatted {ugly}\n"
    assert parlay("fmt", ugly).out == ""


def test_permissions_stay_and_nothing_is_left_beside(
    parlay: Callable[..., Any], ugly: Path
) -> None:
    ugly.chmod(0o640)
    parlay("fmt", ugly)
    assert stat.S_IMODE(ugly.stat().st_mode) == 0o640
    assert list(ugly.parent.iterdir()) == [ugly]


def test_a_link_stays_a_link(parlay: Callable[..., Any], ugly: Path) -> None:
    link = ugly.with_name("link.par")
    link.symlink_to(ugly.name)
    assert parlay("fmt", link).status == 0
    assert link.is_symlink() and ugly.read_bytes() == NEAT.encode()


def test_check_changes_nothing(parlay: Callable[..., Any], ugly: Path) -> None:
    ended = parlay("fmt", "--check", ugly)
    assert ended.status == 1 and ended.out == f"would be formatted {ugly}\n"
    assert ugly.read_bytes() == UGLY.encode()
    parlay("fmt", ugly)
    assert parlay("fmt", "--check", ugly).status == 0


def test_diff_shows_what_a_patch_applies(parlay: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_text("let a=1\nlet b = 2")
    ended = parlay("fmt", "--diff", path)
    assert ended.status == 0
    assert "-let a=1\n" in ended.out and "+let a = 1\n" in ended.out
    assert "\\ No newline at end of file\n" in ended.out
    assert parlay("fmt", "--diff", "--check", path).status == 1
    patched = subprocess.run(
        ["patch", "-p0", str(path)], input=ended.out, text=True, capture_output=True
    )
    assert patched.returncode == 0, patched.stdout
    assert path.read_text() == "let a = 1\nlet b = 2\n"


def test_errors_are_told_and_the_file_stays(parlay: Callable[..., Any], ugly: Path) -> None:
    broken = ugly.with_name("broken.par")
    broken.write_text("parallel { tp = }")
    ended = parlay("fmt", broken, ugly)
    assert ended.status == 1 and "error[P" in ended.err
    assert broken.read_text() == "parallel { tp = }"
    assert ugly.read_bytes() == NEAT.encode()


def test_a_missing_file(parlay: Callable[..., Any], tmp_path: Path) -> None:
    ended = parlay("fmt", tmp_path / "none.par")
    assert ended.status == 1 and "P001" in ended.err


def test_stdin_to_stdout() -> None:
    command = [sys.executable, "-m", "parlay.compiler.cli", "fmt", "-"]
    ended = subprocess.run(command, input=UGLY.encode(), capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, NEAT.encode())
    ended = subprocess.run(command, input=b"\xff", capture_output=True, timeout=60)
    assert ended.returncode == 1 and b"P005" in ended.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_file_that_cannot_be_written(parlay: Callable[..., Any], ugly: Path) -> None:
    ugly.chmod(0o444)
    ended = parlay("fmt", ugly)
    assert ended.status == 1 and "cannot be written" in ended.err


def test_nothing_is_lost_where_writing_fails(
    parlay: Callable[..., Any], ugly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ended = parlay("fmt", ugly)
    assert ended.status == 1 and "no space left" in ended.err
    assert ugly.read_bytes() == UGLY.encode() and list(ugly.parent.iterdir()) == [ugly]


def test_no_terminal_obeys_a_comment(parlay: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J.par"
    path.write_text("let a=1")
    assert "\x1b" not in parlay("fmt", "--check", path).out


def test_what_is_shown_is_canonical(parlay: Callable[..., Any]) -> None:
    root = Path(__file__).resolve().parents[2]
    shown = [*root.glob("examples/*/*.par"), root / "docs" / "mistakes.par"]
    assert len(shown) > 25
    ended = parlay("fmt", "--check", *shown)
    assert (ended.status, ended.out) == (0, "")
