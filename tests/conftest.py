"""What several folders of tests use: the command, in this process or as one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def parlay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """`parlay("check", path)` through the console script's function, in this process."""
    from parlay.compiler.cli import main

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["parlay", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        status = ended.value.code
        assert isinstance(status, int)
        return Ended(status, out, err)

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`process("check", path, NO_COLOR="1")`: the command as a process of its own."""

    def run(
        *arguments: object, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "parlay.compiler.cli", *map(str, arguments)]
        environment = {**os.environ, **variables}
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
        )

    return run


@pytest.fixture
def tiny() -> Path:
    """The example that trains on this machine."""
    return ROOT / "examples" / "tiny" / "tiny.par"
