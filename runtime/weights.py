"""The weights of one rank, end to end in one flat buffer.

Gradients, master weights and optimizer state are buffers of the same layout, so that a reduction,
a cast or an update is one operation over a range, whatever the weights are. The order of the
buffer makes ranges of what is treated alike:

    cut matrices | whole matrices | whole vectors | cut vectors | padding

`whole` weights are the same on every rank of tp (norms); `cut` ones are pieces. Vectors, norms and
biases, do not decay; they come last, so that matrices, whose sizes are multiples of 8, start where
products of a GPU are fast, and grouped ones possible: at multiples of 16 bytes. Some pieces are
held by several ranks alike, `copies` of each other: a key/value head that more than one rank of tp
needs, an embedding on the first stage and the last.
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


class Piecewise(NamedTuple):
    """A dim of a weight that is cut, and which of how many pieces this one is."""

    dim: int
    piece: int
    pieces: int


class Dealt(NamedTuple):
    """Who holds the routed experts: whole ones are dealt over `ep`, along dim 0 of their weights,
    and the features of each are cut over `etp`, along the dim that `cut` names."""

    cut: Mapping[str, int]
    ep: Axis | None = None
    etp: Axis | None = None

    def of(self, name: str) -> tuple[Piecewise, ...]:
        """What this rank has of the experts' weight `name`."""
        dims = (0, self.ep), (self.cut[end_of(name)], self.etp)
        return tuple(Piecewise(dim, axis.rank, axis.size) for dim, axis in dims if axis is not None)


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
    dealt: tuple[Piecewise, ...] = ()
    """How the weight of routed experts is cut."""


class Piece(NamedTuple):
    """What a rank owns of a weight: a run of its elements from `offset` on.

    `start` and `stop` say where it lies in all that the rank owns.
    """

    place: Place
    offset: int
    start: int
    stop: int

    @property
    def decays(self) -> bool:
        """Whether the weight is a matrix, or one for each of several experts."""
        return len(self.place.shape) > (2 if routed(self.place.name) else 1)

    @property
    def steered(self) -> bool:
        """Whether it is moved by how often experts are visited, and its gradient counts that."""
        return end_of(self.place.name) == "router.correction"


class Region(NamedTuple):
    """A range of what a rank owns in which all is updated alike."""

    start: int
    stop: int
    decays: bool
    steered: bool = False


class Weights:
    """Allocates the parameters of `model`, built on the meta device, as views of one buffer.

    `cut` gives the dim that is cut over tp by the end of a name, `"q.weight": 0`; what it does not
    name is whole. `copies` says which ranks hold a piece alike. `multiple` pads the buffer, so that
    it divides into as many equal shards. Weights of routed experts are left out; with `dealt`,
    which says how they are cut, they are all there is. With `trained` only those that ask for
    gradients are taken; where it is false, only the others.
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
        dealt: Dealt | None = None,
        trained: bool | None = None,
    ) -> None:
        cut = dealt.cut if dealt is not None else cut or {}
        held = {
            name: parameter
            for name, parameter in model.named_parameters()
            if routed(name) == (dealt is not None) and trained in (None, parameter.requires_grad)
        }
        named = [(name, parameter, cut_of(name, cut)) for name, parameter in held.items()]
        named.sort(key=lambda item: order_of(*item))
        places, at = [], 0
        for name, parameter, dim in named:
            stop = at + parameter.numel()
            pieces = () if dealt is None else dealt.of(name)
            alike = copies_of(name, copies)
            places.append(Place(name, parameter.shape, at, stop, dim, alike, pieces))
            at = stop
        self.places = tuple(places)
        self.numel = at
        whole = [place for place in places if place.cut is None]
        self.whole = slice(whole[0].start, whole[-1].stop) if whole else slice(0)
        """Where the whole weights lie."""
        self.buffer = torch.zeros(-(-at // multiple) * multiple, dtype=dtype, device=device)
        views = {
            id(parameter): nn.Parameter(self.view(self.buffer, place), parameter.requires_grad)
            for (_, parameter, _), place in zip(named, self.places, strict=True)
        }
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) in views:
                    setattr(module, name, views[id(parameter)])
        self.parameters = {
            name: parameter for name, parameter in model.named_parameters() if name in held
        }

    @staticmethod
    def view(buffer: Tensor, place: Place) -> Tensor:
        """The weight at `place` in a buffer of this layout."""
        return buffer[place.start : place.stop].view(place.shape)

    def pieces(self, owned: slice) -> tuple[Piece, ...]:
        """What the range `owned` of the buffer has of each weight."""
        found = []
        for place in self.places:
            first, last = max(place.start, owned.start), min(place.stop, owned.stop)
            if first < last:
                start, stop = first - owned.start, last - owned.start
                found.append(Piece(place, first - place.start, start, stop))
        return tuple(found)

    def all_gather(self, *, axis: Axis) -> None:
        """Each rank of `axis` has updated its shard of the buffer; after this, all have all."""
        if self.buffer.numel():
            shard = self.buffer[shard_of(self.buffer, axis)]
            all_gather(self.buffer, shard, group=axis.group)


def regions(pieces: Sequence[Piece], *, borders: Collection[int] = ()) -> list[Region]:
    """The pieces as runs of what decays and of what does not, or of what is steered; none goes over
    one of `borders`."""
    found: list[Region] = []
    for piece in pieces:
        last = found[-1] if found else None
        joins = last is not None and last.stop == piece.start and piece.start not in borders
        kind = piece.decays, piece.steered
        if last is not None and joins and (last.decays, last.steered) == kind:
            found[-1] = last._replace(stop=piece.stop)
        else:
            found.append(Region(piece.start, piece.stop, *kind))
    return found


def counted(pieces: Sequence[Piece], *, once: Axis | None) -> list[tuple[int, int]]:
    """Ranges that together, over all ranks that own something, name each weight once, but what is
    steered, which has no gradient.

    Whole weights are named on the first rank of `once`, copies on the first that has them.
    """
    ranges: list[tuple[int, int]] = []
    for piece in pieces:
        others = once if piece.place.cut is None else None
        if not all(axis is None or axis.first for axis in (others, piece.place.copies)):
            continue
        if piece.steered:
            continue
        start = ranges.pop()[0] if ranges and ranges[-1][1] == piece.start else piece.start
        ranges.append((start, piece.stop))
    return ranges


def cut_of(name: str, cut: Mapping[str, int]) -> int | None:
    """The dim of weight `name` that is cut over tp: `layers.7.attention.q.weight` is `q.weight`."""
    return cut.get(end_of(name))


def copies_of(name: str, copies: Copies) -> Axis | None:
    """The ranks that hold weight `name` alike, by the end of its name."""
    return next((axis for names, axis in copies if end_of(name) in names), None)


def end_of(name: str) -> str:
    """`layers.7.attention.q.weight` -> `q.weight`; `layers.7.mlp.experts.up.weight` ->
    `experts.up.weight`."""
    return ".".join(name.split(".")[-3 if routed(name) else -2 :])


def routed(name: str) -> bool:
    """Whether a weight is one of routed experts."""
    return name.split(".")[-3:-2] == ["experts"]


def shard_of(buffer: Tensor, axis: Axis) -> slice:
    """The equal piece of a flat buffer that belongs to this rank of `axis`."""
    size, rest = divmod(buffer.numel(), axis.size)
    if rest:
        raise ValueError(f"{buffer.numel()} elements do not divide into {axis.size} shards")
    return slice(axis.rank * size, (axis.rank + 1) * size)


def order_of(name: str, parameter: Tensor, cut: int | None) -> int:
    """Cut matrices, whole matrices, whole vectors, cut vectors."""
    whole, matrix = cut is None, parameter.dim() > (2 if routed(name) else 1)
    return (1 if matrix else 2) if whole else (0 if matrix else 3)
