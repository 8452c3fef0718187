"""`parlay export`: a save of a run as a folder of Hugging Face weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from parlay.compiler.commands.rewrite import reason
from parlay.compiler.commands.run import torch_found
from parlay.compiler.importers.folder import lacking
from parlay.dsl.diagnostics.cells import harmless

PLAN: Final = "plan.json"
LARGEST: Final = 16 << 20


def run(folder: Path, out: Path, *, save: Path | None, dtype: str | None) -> int:
    """Writes the newest save of `folder`, or the one at `save`, to `out`, which is new.

    `folder` is one that `run` or `compile` wrote. 1 where it has no save, or no family of Hugging
    Face's computes its model.
    """
    code = _code(folder)
    plan = _plan(folder, code)
    if isinstance(plan, str):
        return _not(plan)
    if save is None and "checkpoint" not in plan:
        return _not(f"{folder} asks for no saves; --save names one")
    if os.path.lexists(out):
        return _not(f"{out} is there already; nothing was changed")
    if not torch_found():
        return 1
    command = [sys.executable, "-m", "parlay.runtime.export", str(code.absolute())]
    command += ["--to", str(out.absolute())]
    command += [] if save is None else ["--save", str(save.absolute())]
    command += [] if dtype is None else ["--dtype", dtype]
    environment = {**os.environ}
    environment.setdefault("PARLAY_OUT", str(_root(code, plan).absolute()))
    done = subprocess.run(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    said = done.stderr.decode(errors="backslashreplace").splitlines()
    told = [line for line in said if line.startswith(("error: ", "note: "))]
    for line in told or (said[-1:] if done.returncode else []):
        print(f"parlay: {harmless(line.removeprefix('error: '))}", file=sys.stderr)
    if done.returncode:
        return 1
    print(harmless(str(out)))
    return 0


def _not(words: str) -> int:
    print(f"parlay: {harmless(words)}", file=sys.stderr)
    return 1


def _code(folder: Path) -> Path:
    """The emitted code: the folder, or `torch` in it."""
    below = folder / "torch"
    return below if not (folder / PLAN).is_file() and (below / PLAN).is_file() else folder


def _plan(folder: Path, code: Path) -> Mapping[str, Any] | str:
    """What plan.json says, or why it says nothing."""
    path = code / PLAN
    try:
        if folder.is_dir() and not path.is_file():
            return f"{folder} is no folder of emitted code: {lacking(folder, PLAN)}"
        if path.is_file() and path.stat().st_size > LARGEST:
            return f"{path} is larger than {LARGEST >> 20} MiB"
        found = json.loads(path.read_bytes())
    except OSError as failure:
        return f"{folder} cannot be read: {reason(failure)}"
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) and "parlay" in found else f"{path} is none of Parlay's"


def _root(code: Path, plan: Mapping[str, Any]) -> Path:
    """Where paths of saves count from: `run` keeps them beside the code, launch.sh in it."""
    saves = plan.get("checkpoint")
    path = saves.get("path") if isinstance(saves, dict) else None
    beside = code.absolute().parent
    return beside if isinstance(path, str) and (beside / path).is_dir() else code
