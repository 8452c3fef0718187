"""`-` in place of a file: the text that comes over stdin, read once."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


@pytest.mark.parametrize(
    "command",
    [
        ["check", "--json"],
        ["ledger", "--json", "--target", "torch"],
        ["layout", "--json"],
        ["diff", "other.par", "--json"],
        ["explain", "--field", "parallel.dp"],
    ],
    ids=lambda command: command[0],
)
def test_as_a_file(
    command: list[str],
    over: Callable[[bytes], None],
    parlay: Any,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is said of a text does not depend on how it came."""
    monkeypatch.chdir(tmp_path)
    text = tiny.read_bytes()
    Path("job.par").write_bytes(text)
    Path("other.par").write_bytes(text.replace(b"pp = 2", b"pp = 4"))
    of_file = parlay(*command, "job.par")
    over(text)
    of_stdin = parlay(*command, "-")
    assert (of_stdin.status, of_stdin.err) == (of_file.status, of_file.err) == (0, of_file.err)
    assert of_stdin.out.replace("<stdin>", "job.par") == of_file.out
    assert of_stdin.out != "" and "-:" not in of_stdin.out


def test_errors_and_imports(
    over: Callable[[bytes], None], parlay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports count from the current folder, and may not leave it."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.par").write_text('cluster { node from "dgx-h100" }')
    over(b'import "cluster.par"\nimport "../away.par"\nparallel { tp = 3 }\n')
    ended = parlay("check", "-", "--json")
    told = json.loads(ended.out)["files"]
    assert (ended.status, [each["file"] for each in told]) == (1, ["<stdin>"])
    assert {one["code"] for one in told[0]["diagnostics"]} >= {"P101", "L201"}


def test_what_is_no_text(over: Callable[[bytes], None], parlay: Any) -> None:
    for data, code in ((b"", "P007"), (b"a\0b", "P006"), (b"\xff", "P005"), (b" " * 2**21, "P004")):
        over(data)
        assert f"error[{code}]" in parlay("check", "-").out


@pytest.mark.parametrize(
    "command", [["check", "-", "--fix"], ["check", "-", "--watch"], ["plan", "-", "--write"]]
)
def test_nothing_to_change(parlay: Any, command: list[str]) -> None:
    ended = parlay(*command)
    assert (ended.status, ended.out) == (2, "")
    assert f"{command[2]} needs a file, and - is stdin" in ended.err


def test_compiled(over: Callable[[bytes], None], parlay: Any, tiny: Path, tmp_path: Path) -> None:
    over(tiny.read_bytes())
    assert parlay("compile", "-", "-t", "torch", "-o", tmp_path).status == 0
    assert (tmp_path / "torch" / "train.py").is_file()
