"""The settings of torchtitan by section, as its own classes list them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

VERSIONS: Final = ("0.3",)
NEWEST: Final = "0.3"


def version_of(written: str) -> str | None:
    """The version that a file's words name: `0.3` for `0.3.0`; None for one that is not known."""
    short = ".".join(written.split(".")[:2])
    return short if short in VERSIONS else None


@cache
def sections(version: str) -> Mapping[str, tuple[str, ...]]:
    """Section -> the names of its fields."""
    path = Path(__file__).with_name(f"{version}.json")
    found: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return {section: tuple(names) for section, names in found.items()}


def place_of(name: str, version: str) -> tuple[str, str] | None:
    """Section and field of an option: its own name where one section has it, or `section_field`."""
    found = [(section, name) for section, names in sections(version).items() if name in names]
    found += [
        (section, name.removeprefix(f"{section}_"))
        for section, names in sections(version).items()
        if name.startswith(f"{section}_") and name.removeprefix(f"{section}_") in names
    ]
    return found[0] if len(found) == 1 else None
