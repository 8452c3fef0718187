"""What several folders of tests use: the command, in this process or as one of its own.

Also the order in which files are handed out, and how many examples Hypothesis tries.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# Times on a busy machine say nothing about the code. `make check` asks for "quick"; a test that
# wants more or fewer examples than others says how many times `settings.default.max_examples`.
settings.register_profile("full", deadline=None, max_examples=100)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("full")

# Every worker has a core; threads of torch would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The commands are made from their functions once, not anew in every test that calls one.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command

# Modules and tests are not looked through for cycles again and again: not while they are read, not
# after; what tests leave behind is.
gc.disable()

SECONDS = {"distributed": 5.0, "oracle": 5.0, "slow": 10.0}
"""What a test of a mark takes, about; any other is done in a thirtieth of a second."""


NONE_OF = re.compile(r"not \w+(?: and not \w+)*")
MARKED = re.compile(r"^pytestmark = (\[[^]]*\]|.*)$", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that `-m "not …"` leaves out whole are not read: they import frameworks by the second.

    Only where every test of a file has the mark, by a `pytestmark` that names it.
    """
    asked = config.getoption("markexpr")
    if collection_path.suffix != ".py" or not NONE_OF.fullmatch(asked):
        return None
    named = MARKED.search(collection_path.read_text(encoding="utf-8"))
    marks = re.findall(r"pytest\.mark\.(\w+)", named[1]) if named else []
    return True if set(marks) & set(re.findall(r"not (\w+)", asked)) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: the last one to be started leaves the other cores idle."""
    expected: Counter[Path] = Counter()
    for item in items:
        marks = {mark.name: mark for mark in item.iter_markers()}
        seconds = [SECONDS[name] for name in marks if name in SECONDS]
        if "timeout" in marks:
            seconds.append(marks["timeout"].args[0] / 10)
        expected[item.path] += max(seconds, default=1 / 30)
    items.sort(key=lambda item: -expected[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


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


@pytest.fixture
def interruptible() -> Callable[[], object]:
    """For `preexec_fn`: a process that an interrupt ends, even where the tests ignore theirs.

    Whatever a shell starts with `&` or nohup ignores SIGINT, and so does what that starts.
    """
    return lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
