"""Reading the catalog: facts are files, and a file is opened when its name is asked for.

A fact file is `source = "…"`, an optional `note = "…"`, and one table named after the block:

    source = "https://…"
    [node]
    gpus = 8
    [node.gpu]
    from = "h100-sxm-80gb"
    [node.link]
    kind = "nvswitch"
    bandwidth = "450GB/s"

Keys are field names of the language. Integers and booleans stand for themselves, a string is an
expression of the language, an array is a list; `from` names a preset of the nested block's kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

FOLDERS: Mapping[str, str] = MappingProxyType({"model": "models", "gpu": "gpus", "node": "nodes"})
KINDS: tuple[str, ...] = tuple(FOLDERS)
"""The kinds of presets, by the name of their block."""

_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class Preset:
    """One entry; `values` is the block's table under the block's name, as the file has it."""

    kind: str
    name: str
    source: str
    note: str | None
    values: Mapping[str, Any]


def names(kind: str) -> tuple[str, ...]:
    """The presets of a kind in alphabetical order; none for a kind the catalog does not have."""
    return tuple(sorted(_files(kind)))


def load(kind: str, name: str) -> Preset | None:
    """The preset, or None where the catalog has none of exactly that name.

    A name is looked up in the listing and never becomes part of a path, so `../x` is merely
    unknown.
    """
    return _read(kind, name) if name in _files(kind) else None


@cache
def _files(kind: str) -> Mapping[str, Path]:
    if kind not in FOLDERS:
        return MappingProxyType({})
    # Not importlib.resources: it imports tempfile, zipfile and random, a tenth of `parlay check`.
    folder = Path(__file__).with_name(FOLDERS[kind])
    return MappingProxyType({path.stem: path for path in folder.glob(f"*{_SUFFIX}")})


@cache
def _read(kind: str, name: str) -> Preset:
    import tomllib

    content = tomllib.loads(_files(kind)[name].read_text(encoding="utf-8"))
    return Preset(
        kind, name, content["source"], content.get("note"), _frozen({kind: content[kind]})
    )


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    return value
