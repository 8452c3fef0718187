"""The README as written: its `sh` blocks run in order, and the `text` block after one is what it
prints, `…` standing for anything and `1.4e-16` for any such error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TRAINS = ("parlay run", "parlay verify")


class Block(NamedTuple):
    script: str
    prints: str | None


def blocks() -> list[Block]:
    found: list[Block] = []
    for language, body in re.findall(r"^```(sh|text)\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        if language == "sh":
            found.append(Block(body, None))
        else:
            found[-1] = Block(found[-1].script, body)
    return found


def pattern(shown: str) -> str:
    """The expression for a shown text; blanks at the ends of lines do not count."""
    lines = [re.escape(line.rstrip()).replace("…", ".*") for line in shown.splitlines()]
    lines = [re.sub(r"\d\\\.\de\\-\d\d", r"\\d\\.\\de-\\d\\d", line) for line in lines]
    return "\n".join(r"(.*\n)*?.*" if line == ".*" else line for line in lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the tour reads."""
    copy = tmp_path_factory.mktemp("tour")
    for name in ("examples", "docs"):
        shutil.copytree(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `parlay` is this one."""
    tools = tmp_path_factory.mktemp("tools")
    script = tools / "parlay"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parlay.compiler.cli "$@"\n')
    script.chmod(0o755)
    return f"{tools}{os.pathsep}{os.environ['PATH']}"


def check(block: Block, folder: Path, path: str) -> None:
    ended = subprocess.run(
        ["bash", "-e", "-c", block.script],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    printed = "\n".join(line.rstrip() for line in ended.stdout.splitlines())
    errors = block.prints is not None and "error[" in block.prints
    assert ended.returncode == (1 if errors else 0), printed
    if block.prints is not None:
        assert re.fullmatch(pattern(block.prints), printed), f"it prints\n{printed}"


@pytest.mark.slow
@pytest.mark.distributed  # as a whole: a block may need what an earlier one has written
@pytest.mark.parametrize("block", [pytest.param(b, id=b.script.splitlines()[0]) for b in blocks()])
def test_a_block(block: Block, folder: Path, path: str) -> None:
    if any(word in block.script for word in TRAINS):
        pytest.importorskip("torch")
    check(block, folder, path)


def test_the_blocks_are_found() -> None:
    assert len(blocks()) >= 10
    assert sum(block.prints is not None for block in blocks()) >= 4


def commands(parlay: Any) -> set[str]:
    listed = parlay("--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^  (\w+) ", listed, re.MULTILINE))


def test_the_table_names_every_command(parlay: Any) -> None:
    table = README.partition("| command | what |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row]
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert told == commands(parlay)


def test_the_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
