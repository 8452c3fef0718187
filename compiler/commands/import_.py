"""`parlay import`: a framework's configuration to `.par`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from parlay.compiler.commands.rewrite import create, reason
from parlay.compiler.importers.hf import Unreadable
from parlay.dsl.diagnostics.cells import harmless

FORMATS: Final[Mapping[str, str]] = {
    "hf": "parlay.compiler.importers.hf_job",
    "megatron": "parlay.compiler.importers.megatron",
    "deepspeed": "parlay.compiler.importers.deepspeed",
    "torchtitan": "parlay.compiler.importers.torchtitan",
}
"""Format -> the module with `read(path, gpus=…, node=…)`, which gives an `Imported`."""

NAMELESS: Final = ("deepspeed",)
"""Formats that name no model; their `read` takes one."""


def run(
    format: str,
    path: Path,
    *,
    out: Path | None,
    gpus: int | None,
    node: str | None,
    model: str | None = None,
) -> int:
    """Writes the `.par` text to `out` or stdout; tells on stderr what to look at; 1 for no job."""
    reader: Callable[..., Any] = import_module(FORMATS[format]).read
    given: dict[str, Any] = {"gpus": gpus} | ({} if node is None else {"node": node})
    given |= {} if model is None else {"model": model}
    try:
        imported = reader(path, **given)
    except Unreadable as told:
        print(f"parlay: {harmless(str(path))} gives no job: {harmless(str(told))}", file=sys.stderr)
        return 1
    for title, lines in (("assumed", imported.assumed), ("not understood", imported.lost)):
        for line in lines:
            print(f"parlay: {title}: {harmless(line)}", file=sys.stderr)
    if out is None:
        sys.stdout.write(imported.text)
        return 0
    shown = harmless(str(out))
    try:
        create(out, imported.text)
    except FileExistsError:
        print(f"parlay: {shown} is there already; nothing was changed", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"parlay: {shown} cannot be written: {reason(failure)}", file=sys.stderr)
        return 1
    print(shown)
    return 0
