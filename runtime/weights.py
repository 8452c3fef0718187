"""The weights of one rank, end to end in one flat buffer.

Gradients, master weights and optimizer state are buffers of the same layout, so that a reduction,
a cast or an update is one operation over a range, whatever the weights are. The order of the
buffer makes ranges of what is treated alike:

    whole matrices | whole vectors | cut vectors | cut matrices | padding

`whole` weights are the same on every rank of tp (norms); `cut` ones are pieces. Vectors, norms and
biases, do not decay. Some pieces are held by several ranks alike, `copies` of each other: a
key/value head that more than one rank of tp needs, an embedding on the first stage and the last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from parlay.runtime.collectives import all_gather
from parlay.runtime.mesh import Axis
from torch import Tensor, nn

Copies = Sequence[tuple[Collection[str], Axis]]
"""The ends of names, `"k.weight"`, and the ranks that hold what they name alike."""


class Place(NamedTuple):
    """Where a weight lies in the flat buffer."""

    name: str
    shape: torch.Size
    start: int
    stop: int
    cut: int | None
    """The dim that is cut over tp; None where the weight is whole."""
    copies: Axis | None = None
    """The ranks that hold this piece alike; None where it is held once in a replica."""


class Region(NamedTuple):
    """A range of the flat buffer in which everything decays, or nothing does."""

    start: int
    stop: int
    decays: bool


class Weights:
    """Allocates the parameters of `model`, built on the meta device, as views of one buffer.

    `cut` gives the dim that is cut over tp by the end of a name, `"q.weight": 0`; what it does not
    name is whole. `copies` says which ranks hold a piece alike. `multiple` pads the buffer, so that
    it divides into as many equal shards.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        dtype: torch.dtype,
        device: torch.device,
        cut: Mapping[str, int] | None = None,
        copies: Copies = (),
        multiple: int = 1,
    ) -> None:
        named = [(name, p, cut_of(name, cut or {})) for name, p in model.named_parameters()]
        named.sort(key=lambda item: _rank(item[1], item[2]))
        places, at, whole = [], 0, 0
        for name, parameter, dim in named:
            stop = at + parameter.numel()
            places.append(Place(name, parameter.shape, at, stop, dim, copies_of(name, copies)))
            at = stop
            whole = at if dim is None else whole
        self.places = tuple(places)
        self.numel = at
        self.whole = whole
        """Whole weights fill the buffer up to here."""
        self.buffer = torch.zeros(-(-at // multiple) * multiple, dtype=dtype, device=device)
        views = {
            id(parameter): nn.Parameter(self.view(self.buffer, place), parameter.requires_grad)
            for (_, parameter, _), place in zip(named, self.places, strict=True)
        }
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, views[id(parameter)])
        self.parameters = dict(model.named_parameters())

    @staticmethod
    def view(buffer: Tensor, place: Place) -> Tensor:
        """The weight at `place` in a buffer of this layout."""
        return buffer[place.start : place.stop].view(place.shape)

    def regions(self) -> list[Region]:
        """The buffer as runs of weights that decay and of weights that do not."""
        regions: list[Region] = []
        for place in self.places:
            decays = len(place.shape) > 1
            if regions and regions[-1].decays == decays:
                regions[-1] = Region(regions[-1].start, place.stop, decays)
            else:
                regions.append(Region(place.start, place.stop, decays))
        return regions

    def counted(self, *, once: Axis | None) -> list[tuple[int, int]]:
        """Ranges of the buffer that together, over all ranks of a replica, name each weight once.

        Whole weights are named on the first rank of `once`, copies on the first that has them.
        """
        ranges: list[tuple[int, int]] = []
        for place in self.places:
            others = once if place.cut is None else None
            if not all(axis is None or axis.first for axis in (others, place.copies)):
                continue
            start = ranges.pop()[0] if ranges and ranges[-1][1] == place.start else place.start
            ranges.append((start, place.stop))
        return ranges

    def all_gather(self, *, axis: Axis) -> None:
        """Each rank of `axis` has updated its shard of the buffer; after this, all have all."""
        shard = self.buffer[shard_of(self.buffer, axis)]
        all_gather(self.buffer, shard, group=axis.group)


def cut_of(name: str, cut: Mapping[str, int]) -> int | None:
    """The dim of weight `name` that is cut over tp: `layers.7.attention.q.weight` is `q.weight`."""
    return cut.get(end_of(name))


def copies_of(name: str, copies: Copies) -> Axis | None:
    """The ranks that hold weight `name` alike, by the end of its name."""
    return next((axis for names, axis in copies if end_of(name) in names), None)


def end_of(name: str) -> str:
    """`layers.7.attention.q.weight` -> `q.weight`."""
    return ".".join(name.split(".")[-2:])


def shard_of(buffer: Tensor, axis: Axis) -> slice:
    """The equal piece of a flat buffer that belongs to this rank of `axis`."""
    size, rest = divmod(buffer.numel(), axis.size)
    if rest:
        raise ValueError(f"{buffer.numel()} elements do not divide into {axis.size} shards")
    return slice(axis.rank * size, (axis.rank + 1) * size)


def _rank(parameter: Tensor, cut: int | None) -> int:
    whole, matrix = cut is None, parameter.dim() > 1
    return (0 if matrix else 1) if whole else (3 if matrix else 2)
