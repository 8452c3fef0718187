"""Hugging Face `config.json` to `.par`: the model, on machines and a recipe to be changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from parlay.compiler.importers import hf
from parlay.compiler.importers.folder import within
from parlay.compiler.importers.written import Draft, Imported, string

NODE: Final = "dgx-h100"


def read(path: Path, *, gpus: int | None = None, node: str = NODE) -> Imported:
    """The model of a `config.json`, or of the folder that holds one."""
    preset, rest = hf.read_all(within(path, "config.json") if path.is_dir() else path)
    draft = Draft(f"From {path.name}, a model of Hugging Face.", {"model": {}, "cluster": {}})
    put(draft, "model", preset.values["model"])
    draft.lost += rest
    world = gpus or 8
    each = min(world, 8)
    draft.assumed.append(f'{world} GPUs of node from "{node}": a model names no machines')
    draft.set("cluster.nodes", str(-(-world // each)))
    inside = "" if each == 8 else f" {{ gpus = {each} }}"
    draft.set("cluster.@node", f"node from {string(node)}{inside}")
    return draft.finished()


def put(draft: Draft, path: str, fields: Mapping[str, Any]) -> None:
    """Writes the fields of a preset into the block at `path`."""
    for name, given in fields.items():
        below = f"{path}.{name}"
        match given:
            case Mapping():
                put(draft, below, given)
            case bool():
                draft.set(below, "on" if given else "off")
            case list() | tuple():
                draft.set(below, f"[{', '.join(map(str, given))}]")
            case _:
                draft.set(below, str(given))
