"""The frozen weights under adapters, from a save of the whole model under any layout, or from a
Hugging Face folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from parlay.runtime.boxes import Boxes
from parlay.runtime.committed import committed, last_of, read_manifest
from parlay.runtime.hf_folder import is_folder
from parlay.runtime.mesh import Axis
from parlay.runtime.parts import WeightParts
from parlay.runtime.plan import Plan
from parlay.runtime.pretrained import read_weights
from parlay.runtime.saved import CheckpointError, Saved
from parlay.runtime.units import UnitWeights
from parlay.runtime.weights import Piece, Region, Weights
from torch import Tensor

Frozen = Weights | UnitWeights | WeightParts


@torch.no_grad()
def load_base(plan: Plan, weights: Frozen, *, folder: Path, tp: Axis | None = None) -> None:
    """Before: `weights` are frozen ones. After: they are those of `plan.lora.base`, rounded.

    That is a save, a folder of which the newest save is taken, or a Hugging Face folder; it counts
    from `$PARLAY_OUT` or `folder`. Adapters are no part of it.
    """
    saved = Saved(plan, tp=tp)
    path = Path(os.environ.get("PARLAY_OUT") or folder) / plan.lora.base
    # Rows of padding are zeros.
    held = list(_held(weights))
    flats = {piece.place.name: torch.zeros_like(memory, device="cpu") for piece, memory in held}
    state = {
        piece.place.name: saved.boxes(piece.place, piece.offset, flats[piece.place.name])
        for piece, _ in held
    }
    if saved.agreed(lambda: is_folder(path)):
        read_weights(plan, saved, path, state)
    else:
        _read_save(saved, path, {f"master.{name}": boxes for name, boxes in state.items()})
    for piece, memory in held:
        memory.copy_(flats[piece.place.name])


def _held(weights: Frozen) -> Iterator[tuple[Piece, Tensor]]:
    """What a rank has of each weight, and the memory of it: all, or its shards."""
    if isinstance(weights, WeightParts):
        yield from _held(weights.common)
        yield from _held(weights.experts)
        return
    if isinstance(weights, UnitWeights):
        for piece in weights.pieces:
            yield piece, weights.owned(Region(piece.start, piece.stop, piece.decays))
        return
    for piece in weights.pieces(slice(0, weights.numel)):
        yield piece, weights.buffer[piece.start : piece.stop]


def _read_save(saved: Saved, path: Path, state: Mapping[str, Boxes]) -> None:
    save = Path(saved.agreed(lambda: str(newest(path))))
    files = read_manifest(save)["files"]
    if told := saved.wrong(save, files, state):
        raise CheckpointError(f"{save} has no weights for these adapters: {told}")
    saved.read(save, files, state)


def newest(path: Path) -> Path:
    """`path` where it is a save, else the newest save in it."""
    found = path if committed(path) else last_of(path)
    if found is None:
        raise CheckpointError(f"{path} is no save and has none")
    return found
