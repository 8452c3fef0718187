"""Asking the frameworks' own code: each in an environment of its own, made by `.ci/oracles`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

HOME = Path(os.environ.get("PARLAY_ORACLES", Path.home() / ".cache" / "parlay-oracles"))
DRIVERS = Path(__file__).resolve().parents[1] / "oracles"


def environment(name: str) -> tuple[Path, Path, dict[str, str]]:
    """The Python of an environment, the folder of drivers, and the variables to run them with."""
    python = HOME / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {name} in {HOME}: .ci/oracles makes it")
    return python, DRIVERS, {**os.environ, "MEGATRON": str(HOME / "megatron-lm")}


def ask(
    name: str, driver: str, questions: Sequence[Mapping[str, Any]], **variables: str
) -> list[dict[str, Any]]:
    """The answers of a driver in `tests/oracles`, a line of JSON each."""
    python, drivers, inherited = environment(name)
    ended = subprocess.run(
        [python, drivers / driver],
        input="".join(f"{json.dumps(question)}\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=280,
        env={**inherited, **variables},
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]
