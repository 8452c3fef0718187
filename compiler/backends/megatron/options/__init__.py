"""The options of Megatron-LM by version: tables printed by its own parser, read as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

NEWEST: Final = "0.19"
TABLES: Final[Mapping[str, str]] = {
    "0.16": "0.17",
    "0.17": "0.17",
    "0.18": "0.18",
    "0.19": "0.19",
    "0.20": "0.19",
}
"""Version -> the table that stands for it: the nearest one whose parser could be asked."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option string: what it sets, and how.

    `kind` is `on` or `off` for flags that set `dest` to true or false, `value`, `list` or `const`.
    """

    name: str
    dest: str
    kind: str
    type: str | None = None
    choices: tuple[Any, ...] = ()

    @property
    def flag(self) -> bool:
        """Whether no value follows it."""
        return self.kind in ("on", "off", "const")


def version_of(written: str) -> str | None:
    """The version that a file's words name: `0.19` for `0.19.2`; None for one that is not known."""
    short = ".".join(written.split(".")[:2])
    return short if short in TABLES else None


@cache
def table(version: str) -> Mapping[str, Option]:
    """The options of a version by their strings."""
    path = Path(__file__).with_name(f"{TABLES[version]}.json")
    rows: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Option(name, row["dest"], row["kind"], row.get("type"), tuple(row.get("choices", ())))
        for name, row in rows.items()
    }


@cache
def by_dest(version: str) -> Mapping[str, tuple[Option, ...]]:
    """The options of a version by what they set."""
    found: dict[str, tuple[Option, ...]] = {}
    for option in table(version).values():
        found[option.dest] = (*found.get(option.dest, ()), option)
    return found
