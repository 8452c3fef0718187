"""Pages with commands in them: every block of a page is run, and shows what it really prints.

A fenced block ` ```par run.par ` writes that file (` ```par run.par +` adds to it, after a blank
line). A block ` ```console ` holds `$ parlay …` lines, each followed by its output; where its
status is not 0 a last line `[exit 1]` says so. All blocks of a page share one folder.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH: Final = "100"


def refreshed(page: str, folder: Path) -> str:
    """The page with the output of its commands as they print it now; files go into `folder`."""
    parts: list[str] = []
    at = 0
    for found in FENCE.finditer(page):
        language, words, body = found.groups()
        parts.append(page[at : found.start(3)])
        at = found.end(3)
        names = words.split()
        if language == "par" and names:
            _write(folder / names[0], body, add="+" in names)
        parts.append("".join(_run(body, folder)) if language == "console" else body)
    return "".join([*parts, page[at:]])


def _write(path: Path, text: str, *, add: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") + "\n" if add else ""
    path.write_text(before + text, encoding="utf-8")


def _run(body: str, folder: Path) -> Iterator[str]:
    for line in body.splitlines():
        if not line.startswith("$ "):
            continue
        yield f"{line}\n"
        words = shlex.split(line.removeprefix("$ "))
        assert words[0] == "parlay", line
        ended = subprocess.run(
            [sys.executable, "-m", "parlay.compiler.cli", *words[1:]],
            cwd=folder,
            env={**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
        )
        said = ended.stdout + ended.stderr
        yield "\n".join(each.rstrip() for each in said.splitlines()) + "\n" if said else ""
        if ended.returncode:
            yield f"[exit {ended.returncode}]\n"
