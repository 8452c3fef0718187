"""What `--help` shows: every command whole, with examples that its options allow."""

from __future__ import annotations

import shlex
from itertools import takewhile
from typing import Any

import pytest
import typer.main
from parlay.compiler.cli import COMMANDS, app
from parlay.compiler.cli.examples import EXAMPLES


def test_every_command_in_one_line(parlay: Any) -> None:
    ended = parlay("--help")
    assert ended.status == 0
    listed = ended.out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
    assert "Exit status: 0 clean" in ended.out


@pytest.mark.parametrize("name", COMMANDS)
def test_examples(name: str, parlay: Any) -> None:
    """They are shown line by line, and the command takes them."""
    told = parlay(name, "--help").out
    assert parlay(name, "-h").out == told
    lines = told.partition("Examples:\n")[2].splitlines()
    assert [line.strip() for line in lines] == [f"parlay {line}" for line in EXAMPLES[name]]
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    for line in EXAMPLES[name]:
        given, *rest = takewhile(lambda word: word not in ("<", ">"), shlex.split(line))
        assert given == name
        command.make_context(name, rest)
