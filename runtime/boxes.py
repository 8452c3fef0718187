"""Pieces of whole tensors as a checkpoint sees them: boxes with an offset in the whole tensor.

A rank holds flat slices of its pieces of weights. In the whole weight such a slice is a few boxes,
so that any layout can read what any other has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType


class Box(NamedTuple):
    """A rectangular part of a whole tensor."""

    offsets: tuple[int, ...]
    tensor: Tensor


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """What this rank holds of one whole tensor of `shape`.

    Where `saved` is false another rank has the same and saves it. The three methods below are what
    `torch.distributed.checkpoint` asks of what it saves and loads.
    """

    shape: torch.Size
    boxes: tuple[Box, ...]
    saved: bool = True

    def size(self) -> torch.Size:
        return self.shape

    def on_cpu(self) -> Boxes:
        """A copy that training does not change."""
        copies = (Box(box.offsets, box.tensor.detach().to("cpu", copy=True)) for box in self.boxes)
        return Boxes(shape=self.shape, boxes=tuple(copies), saved=self.saved)

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        return [
            WriteItem(
                index=MetadataIndex(name, box.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=_chunk(box),
                    properties=TensorProperties.create_from_tensor(box.tensor),
                    size=self.shape,
                ),
            )
            for box in self.boxes
            if self.saved
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [_chunk(box) for box in self.boxes]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return next(box.tensor for box in self.boxes if box.offsets == tuple(index.offset or ()))


def _chunk(box: Box) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(box.offsets), sizes=box.tensor.shape)


class Saving(DefaultSavePlanner):
    """Plans the saving of `Boxes` by name; of what several ranks hold alike one writes it."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        found: Boxes = self.state_dict[index.fqn]
        return found.__get_tensor_shard__(index)


class Loading(DefaultLoadPlanner):
    """Plans the loading into `Boxes` by name."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        self.state_dict, self.metadata = state_dict, metadata
        self.is_coordinator, self.flatten_state_dict = is_coordinator, False

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        found: Boxes = self.state_dict[index.fqn]
        return found.__get_tensor_shard__(index)

    def load_bytes(self, read_item: Any, value: Any) -> None:
        raise ValueError(f"{read_item.dest_index.fqn} is no tensor; a checkpoint has tensors alone")


# ── From flat slices ──────────────────────────────────────────────────────────


def boxes_of(
    flat: Tensor,
    *,
    start: int,
    piece: torch.Size,
    whole: torch.Size,
    places: Mapping[int, int],
) -> tuple[Box, ...]:
    """The boxes of a flat slice.

    `flat` holds the elements from `start` on of a piece, which is number `places[dim]` along each
    dim that is cut of the whole tensor. Rows of the piece beyond `whole` are padding and are left
    out.

    6 elements from 2 on of a piece [3, 4] --> [0, 2:4], [1, 0:4]
    """
    found = []
    for at, offsets, sizes in runs(start, start + flat.numel(), piece):
        tensor = flat[at - start : at - start + prod(sizes)].view(sizes)
        offsets = tuple(at + places.get(dim, 0) * piece[dim] for dim, at in enumerate(offsets))
        rows = min(sizes[0], whole[0] - offsets[0])
        if rows > 0:
            found.append(Box(offsets, tensor[:rows]))
    return tuple(found)


def runs(
    start: int, stop: int, shape: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """The elements from `start` to `stop` of a tensor as boxes: first element, offsets, sizes.

    Whole rows are one box; what is left of the first and of the last row are boxes of one row.
    """
    if start >= stop:
        return
    if len(shape) == 1:
        yield start, (start,), (stop - start,)
        return
    width = prod(shape[1:])
    first, last = -(-start // width), stop // width
    if first > last:  # inside of one row
        yield from _in_row(start, stop, last, shape)
        return
    yield from _in_row(start, first * width, first - 1, shape)
    if first < last:
        yield (
            first * width,
            (first, *(0 for _ in shape[1:])),
            (last - first, *shape[1:]),
        )
    yield from _in_row(last * width, stop, last, shape)


def _in_row(
    start: int, stop: int, row: int, shape: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    base = row * prod(shape[1:])
    for at, offsets, sizes in runs(start - base, stop - base, shape[1:]):
        yield at + base, (row, *offsets), (1, *sizes)
