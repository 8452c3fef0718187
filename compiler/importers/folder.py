"""A folder that is asked for a file: the file, or what was looked for and what is there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from parlay.compiler.importers.hf_fields import Unreadable

MOST: Final = 5
"""Names that are told of a folder."""
ENTRIES: Final = 1000
"""Names that are looked at: beyond so many the count is left out."""


def within(folder: Path, *names: str) -> Path:
    """The first of `names` that is a file of the folder; raises `Unreadable` where none is."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise Unreadable(lacking(folder, *names))


def lacking(folder: Path, *names: str) -> str:
    """The words for a folder without the files that were looked for.

    `the folder has no config.json; it holds model.safetensors and 2 more`
    """
    looked = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and no {names[-1]}"
    below = [path.relative_to(folder).as_posix() for path in _below(folder, names[0])]
    if below:
        return f"the folder has no {looked}, but {' and '.join(below)}: name one of its folders"
    return f"the folder has no {looked}; {_held(folder)}"


def _below(folder: Path, name: str) -> list[Path]:
    """Up to two files of that name a folder further down, or in a snapshot of the hub's cache."""
    try:
        found = [each for at in ("*", "snapshots/*") for each in folder.glob(f"{at}/{name}")]
        return sorted(found)[:2]
    except OSError:
        return []


def _held(folder: Path) -> str:
    try:
        entries = sorted(
            f"{each.name}/" if each.is_dir() else each.name
            for each in islice(folder.iterdir(), ENTRIES)
            if not each.name.startswith(".")
        )
    except OSError as failure:
        return f"it cannot be looked into: {(failure.strerror or 'unknown').lower()}"
    if not entries:
        return "it is empty"
    more = len(entries) - MOST
    rest = [f"{more:,} more" if len(entries) < ENTRIES else "many more"] if more > 0 else []
    told = [*entries[:MOST], *rest]
    return f"it holds {', '.join(told[:-1])} and {told[-1]}" if told[1:] else f"it holds {told[0]}"
