"""Hugging Face `config.json` to the fields of a `model` block.

A family that is not known is told, never guessed. The parameter counts that follow are held
against `transformers`' own modules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from parlay.compiler.catalog import Preset
from parlay.compiler.importers.hf_families import FAMILIES
from parlay.compiler.importers.hf_fields import Config, Unreadable, shown

__all__ = ["LARGEST", "Unreadable", "json_object", "read", "read_all"]

LARGEST: Final = 1 << 20


def read(path: Path) -> Preset:
    """The model of a `config.json` as a preset; raises `Unreadable` with the reason."""
    return read_all(path)[0]


def read_all(path: Path) -> tuple[Preset, list[str]]:
    """The model of a `config.json`, and what of it no field says, a key and its value each."""
    config = json_object(path)
    kind = config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise Unreadable(f"model_type {shown(kind)} is not known; known are {known}")
    fields = Config(config)
    try:
        values = family(fields)
    except KeyError as missing:
        raise Unreadable(f"the config lacks {missing.args[0]!r}") from None
    frozen = MappingProxyType({"model": MappingProxyType(values)})
    return Preset("model", path.name, str(path), None, frozen), fields.rest(values)


def json_object(path: Path) -> Mapping[str, Any]:
    """The object that a small JSON file holds; raises `Unreadable` with the reason."""
    try:
        if not path.is_file():
            raise Unreadable("it is no file" if path.exists() else "there is no such file")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"it is larger than {LARGEST // 1024} KiB")
        config = json.loads(path.read_bytes())
    except OSError as failure:
        raise Unreadable(failure.strerror or "it cannot be read") from None
    except (ValueError, RecursionError):
        raise Unreadable("it is no JSON") from None
    if not isinstance(config, dict):
        raise Unreadable("it holds no JSON object")
    return config
