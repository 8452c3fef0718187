"""`parlay export`: what it is asked for, where it looks, how it ends.

What it writes is held against `transformers` in `tests/checkpoint`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `run` leaves it, its saves beside the code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARLAY_OUT", raising=False)
    folder = Path("runs/job")
    (folder / "torch").mkdir(parents=True)
    (folder / "saves" / "step-00000002").mkdir(parents=True)
    plan = {"parlay": "0.1.0", "checkpoint": {"path": "saves"}}
    (folder / "torch" / "plan.json").write_text(json.dumps(plan))
    return folder


class Started:
    """What would have been started, in place of the runtime."""

    def __init__(self, status: int = 0, said: str = "") -> None:
        self.status, self.said = status, said
        self.command: list[str] = []
        self.root = ""

    def __call__(self, command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        self.command, self.root = command[1:], env["PARLAY_OUT"]
        return subprocess.CompletedProcess(command, self.status, None, self.said.encode())


def started(monkeypatch: pytest.MonkeyPatch, **given: Any) -> Started:
    made = Started(**given)
    monkeypatch.setattr("parlay.compiler.commands.export.subprocess.run", made)
    return made


@pytest.mark.parametrize("below", ["", "torch"])
def test_what_run_wrote(
    below: str, ran: Path, parlay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = started(monkeypatch, said="a warning of torch\nnote: no tokenizer\x1b[31m\n")
    ended = parlay("export", ran / below, "-o", "hf", "--dtype", "float16", "--save", "there")
    assert (ended.status, ended.out) == (0, "hf\n")
    assert ended.err.startswith("parlay: note: no tokenizer") and "\x1b" not in ended.err
    code, here = str((ran / "torch").absolute()), Path.cwd()
    asked = ["-m", "parlay.runtime.export", code, "--to", str(here / "hf")]
    assert runtime.command == [*asked, "--save", str(here / "there"), "--dtype", "float16"]
    assert runtime.root == str(ran.absolute())


def test_what_a_launch_script_wrote(
    ran: Path, parlay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its saves lie in the folder of the code, or where PARLAY_OUT says."""
    runtime = started(monkeypatch)
    (ran / "saves").rename(ran / "torch" / "saves")
    parlay("export", ran, "-o", "hf")
    assert runtime.root == str((ran / "torch").absolute())
    monkeypatch.setenv("PARLAY_OUT", "/elsewhere")
    parlay("export", ran, "-o", "hf")
    assert runtime.root == "/elsewhere"


def test_what_the_runtime_refuses(ran: Path, parlay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, status=1, said="error: the save is damaged\n")
    ended = parlay("export", ran, "-o", "hf")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == "parlay: the save is damaged\n"


def test_what_is_no_folder_of_a_run(ran: Path, parlay: Any) -> None:
    os.mkfifo("pipe")
    Path("broken/plan.json").parent.mkdir()
    Path("broken/plan.json").write_text('{"of": "another"}')
    Path("unsaved/plan.json").parent.mkdir()
    Path("unsaved/plan.json").write_text('{"parlay": "0.1.0"}')
    Path("there").mkdir()
    for folder, out, words in (
        ("none", "hf", "cannot be read: no such file"),
        ("pipe", "hf", "cannot be read: not a directory"),
        ("runs", "hf", "the folder has no plan.json; it holds job/"),
        ("broken", "hf", "is none of Parlay's"),
        ("unsaved", "hf", "asks for no saves; --save names one"),
        (ran, "there", "there is there already; nothing was changed"),
    ):
        ended = parlay("export", folder, "-o", out)
        assert (ended.status, ended.out) == (1, "")
        assert ended.err.startswith("parlay: ") and words in ended.err
    assert not Path("hf").exists() and not list(Path("there").iterdir())
    assert parlay("export", ran).status == 2
    assert parlay("export", ran, "-o", "hf", "--dtype", "int8").status == 2
