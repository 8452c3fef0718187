"""What every rank has to know of a save: where its pieces lie, whether it fits, that all agree."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.boxes import Boxes, Loading, boxes_of
from parlay.runtime.committed import Damaged, digest
from parlay.runtime.foreign import INDEX, ForeignError, Reader, read_index
from parlay.runtime.mesh import Axis
from parlay.runtime.plan import Plan
from parlay.runtime.weights import Piecewise, Place, end_of, routed
from torch import Tensor
from torch.distributed.checkpoint import load

VOCABULARY = ("embedding.weight", "head.weight", "head.bias")
"""The ends of the names whose rows may be padded."""


class CheckpointError(RuntimeError):
    """A run cannot be saved, or cannot go on from what was saved."""


class Saved:
    """The ranks that save or read together, on a group of their own; `tp` cuts weights."""

    def __init__(self, plan: Plan, *, tp: Axis | None = None) -> None:
        self.plan, self.tp = plan, tp
        # Ranks connect when they first talk: each with each would be thousands of sockets a rank.
        os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
        self.group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        if self.group is None:
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        self.first = self.group is None or dist.get_rank() == 0

    def boxes(self, place: Place, offset: int, flat: Tensor) -> Boxes:
        """What a rank has from element `offset` of its piece on, in the whole weight."""
        shape, cuts = list(place.shape), place.dealt
        if place.cut is not None and self.tp is not None and not routed(place.name):
            copies = place.copies
            alike = copies.size if copies and set(copies.ranks) <= set(self.tp.ranks) else 1
            cuts = (Piecewise(place.cut, self.tp.rank // alike, self.tp.size // alike),)
        for dim, _, pieces in cuts:
            shape[dim] *= pieces
        if end_of(place.name) in VOCABULARY:
            shape[0] = self.plan.model.vocab
        whole = torch.Size(shape)
        places = {dim: piece for dim, piece, _ in cuts}
        boxes = boxes_of(flat, start=offset, piece=place.shape, whole=whole, places=places)
        return Boxes(shape=whole, boxes=boxes, saved=place.copies is None or place.copies.first)

    def read(self, folder: Path, files: Mapping[str, str], state: Mapping[str, Boxes]) -> None:
        """After: `state` is what stands in `folder`; each rank reads what it holds."""
        load(
            dict(state),
            storage_reader=Reader(folder, files=set(files)),
            planner=Loading(),
            process_group=self.group,
        )

    def wrong(self, folder: Path, files: Mapping[str, str], state: Mapping[str, Boxes]) -> str:
        """Why `folder` cannot be read into `state`, of any rank; empty where it can."""
        found = self.gathered(self._wrong(folder, files, state))
        return "; ".join(f"{name} {words}" for name, words in sorted(found.items())[:3])

    def _wrong(
        self, folder: Path, files: Mapping[str, str], state: Mapping[str, Boxes]
    ) -> dict[str, str]:
        """What is damaged, of this rank's share of the files, or does not fit what it holds."""
        rank, world = (0, 1) if self.group is None else (dist.get_rank(), dist.get_world_size())
        wrong = {
            name: "is damaged"
            for name in sorted(files)[rank::world]
            if not (folder / name).is_file() or digest(folder / name) != files[name]
        }
        try:
            saved = read_index(folder / INDEX).state_dict_metadata
        except (OSError, ForeignError) as error:
            return {**wrong, INDEX: f"is refused: {error}"}
        for name, boxes in state.items():
            if name not in saved:
                wrong[name] = "is missing"
            elif saved[name].size != boxes.shape:
                wrong[name] = f"is {list(saved[name].size)}, here {list(boxes.shape)}"
        return wrong

    # ── Agreement ─────────────────────────────────────────────────────────────

    def agreed(self, decide: Callable[[], Any]) -> Any:
        """What `decide` returns on the first rank, on every rank; what it raises, too."""
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = decide()
            except (OSError, CheckpointError, Damaged) as error:
                answer[1] = str(error)
        if self.group is not None:
            dist.broadcast_object_list(answer, src=0, group=self.group)
        if answer[1] is not None:
            raise CheckpointError(answer[1])
        return answer[0]

    def on_first(self, own: dict[str, str]) -> dict[str, str]:
        """The entries of all ranks together, on the first; elsewhere none."""
        if self.group is None:
            return own
        every: list[Any] | None = [None] * dist.get_world_size() if self.first else None
        dist.gather_object(own, every, dst=0, group=self.group)
        return {name: value for one in every or () for name, value in one.items()}

    def gathered(self, own: dict[str, str]) -> dict[str, str]:
        """The entries of all ranks together, on every rank."""
        if self.group is None:
            return own
        every: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(every, own, group=self.group)
        return {name: value for one in every for name, value in one.items()}
