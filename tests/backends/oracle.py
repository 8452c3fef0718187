"""Asking the frameworks' own code: each in an environment of its own, made by `.ci/oracles`.

To import a framework takes longer than most answers do, so a driver is started once a session and
kept: a line of JSON goes in, a line comes back.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

HOME = Path(os.environ.get("PARLAY_ORACLES", Path.home() / ".cache" / "parlay-oracles"))
DRIVERS = Path(__file__).resolve().parents[1] / "oracles"
SECONDS = 280.0
"""The longest that an answer may take."""


def environment(name: str) -> tuple[Path, Path, dict[str, str]]:
    """The Python of an environment, the folder of drivers, and the variables to run them with."""
    python = HOME / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {name} in {HOME}: .ci/oracles makes it")
    # Byte code is kept there whatever is said here: without it a framework is compiled anew by
    # every process that imports it, which takes two to three times as long.
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return python, DRIVERS, {**own, "MEGATRON": str(HOME / "megatron-lm")}


class Driver:
    """A driver that has been started, and what it has said beside its answers."""

    def __init__(self, command: Sequence[Path], variables: Mapping[str, str]) -> None:
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it goes with this object
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env=variables,
        )

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one question; fails with what was said where there is none."""
        assert self.process.stdin is not None and self.process.stdout is not None
        late = threading.Timer(SECONDS, self.process.kill)
        late.start()
        try:
            self.process.stdin.write(f"{json.dumps(question)}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            status = self.process.wait()
            self.said.seek(0)
            told = self.said.read().decode(errors="replace")[-2000:]
            raise AssertionError(f"the driver ended with {status}: {told}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        for each in (self.process.stdin, self.process.stdout, self.said):
            each.close()


@dataclass
class Drivers:
    """Those of a session, by environment, file and variables."""

    running: dict[tuple[str, ...], Driver] = field(default_factory=dict)

    def ask(
        self, name: str, driver: str, questions: Sequence[Mapping[str, Any]], **variables: str
    ) -> list[dict[str, Any]]:
        """The answers of a driver in `tests/oracles`, a line of JSON each."""
        key = (name, driver, *(f"{each}={variables[each]}" for each in sorted(variables)))
        kept = self.running.get(key)
        if kept is None or kept.process.poll() is not None:
            python, drivers, inherited = environment(name)
            kept = Driver([python, drivers / driver], {**inherited, **variables})
            self.running[key] = kept
        return [kept.answer(question) for question in questions]

    def end(self) -> None:
        for each in self.running.values():
            each.end()
        self.running.clear()
