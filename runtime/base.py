"""The frozen weights under adapters, from a save of the whole model under any layout."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from parlay.runtime.committed import committed, last_of, read_manifest
from parlay.runtime.mesh import Axis
from parlay.runtime.plan import Plan
from parlay.runtime.saved import CheckpointError, Saved
from parlay.runtime.weights import Weights


@torch.no_grad()
def load_base(plan: Plan, weights: Weights, *, folder: Path, tp: Axis | None = None) -> None:
    """Before: `weights` are frozen ones. After: they are those of `plan.lora.base`, rounded.

    That is a save, or a folder of which the newest save is taken; it counts from `$PARLAY_OUT` or
    `folder`. Adapters are no part of it.
    """
    saved = Saved(plan, tp=tp)
    path = Path(os.environ.get("PARLAY_OUT") or folder) / plan.lora.base
    save = Path(saved.agreed(lambda: str(newest(path))))
    files = read_manifest(save)["files"]
    # Rows of padding are zeros.
    flats = {
        place.name: weights.buffer.new_zeros(place.shape.numel(), device="cpu")
        for place in weights.places
    }
    state = {
        f"master.{place.name}": saved.boxes(place, 0, flats[place.name]) for place in weights.places
    }
    if told := saved.wrong(save, files, state):
        raise CheckpointError(f"{save} has no weights for these adapters: {told}")
    saved.read(save, files, state)
    for place in weights.places:
        weights.view(weights.buffer, place).copy_(flats[place.name].view(place.shape))


def newest(path: Path) -> Path:
    """`path` where it is a save, else the newest save in it."""
    found = path if committed(path) else last_of(path)
    if found is None:
        raise CheckpointError(f"{path} is no save and has none")
    return found
