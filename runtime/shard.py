"""Gradients as flat buffers, and which of them a rank owns.

With `Gradients` every rank owns all of them; `ShardedGradients` makes of any optimizer a sharded
one (ZeRO-1): after a reduce_scatter a rank owns 1/n of the gradients, keeps the master weights and
the state of that shard alone, and the updated weights are gathered. The borders of shards ignore
those of weights.

Gradients are summed everywhere and averaged nowhere: the loss is already divided by the number of
labels of the global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from parlay.runtime.collectives import reduce_scatter
from parlay.runtime.mesh import Axis
from parlay.runtime.precision import wide
from parlay.runtime.weights import Piece, Region, Weights, counted, end_of, regions, shard_of
from torch import Tensor

# ── Gradients ─────────────────────────────────────────────────────────────────


class Slice(NamedTuple):
    """A piece of a weight's gradient or state; `offset` counts elements of the flattened weight."""

    name: str
    offset: int
    tensor: Tensor


class Owned:
    """Gradients of which `own`, flat, are complete on this rank; it updates their weights."""

    own: Tensor
    pieces: Sequence[Piece]
    """Where weights lie in `own`."""

    def of(self, region: Region) -> Tensor:
        """The gradients of a region."""
        return self.own[region.start : region.stop]

    def regions(self) -> list[Region]:
        """`own` as runs of what decays and of what does not."""
        return regions(self.pieces)

    def weights_of(self, region: Region) -> Tensor:
        """The weights of a region, in the memory that an update writes."""
        raise NotImplementedError

    def all_reduce(self, *, axis: Axis, bucket: int) -> None:
        """Sums what is owned over `axis`, in all_reduces of `bucket` elements."""
        parts = self.own.split(bucket) if self.own.numel() else ()
        works = [dist.all_reduce(part, group=axis.group, async_op=True) for part in parts]
        for work in works:
            work.wait()

    def norm(
        self,
        *,
        over: Axis | None = None,
        once: Axis | None = None,
        replicas: Axis | None = None,
        alike: Axis | None = None,
    ) -> Tensor:
        """The norm of all gradients.

        `over` is the group that owns all weights together: one all_reduce of one number. Whole
        weights are the same on every rank of `once` and count on its first, copies on the first of
        the ranks that have them, and everything on the first of `replicas`. Each rank of `alike`
        brings the same, which counts once.
        """
        squares = self.squares(once=once, replicas=replicas)
        return root(squares, over=over, alike=alike)

    def squares(self, *, once: Axis | None = None, replicas: Axis | None = None) -> Tensor:
        """What this rank brings to the square of the norm."""
        squares = torch.zeros((), dtype=wide(self.own.dtype), device=self.own.device)
        for start, stop in counted(self.pieces, once=once):
            if replicas is None or replicas.first:
                part = self.own[start:stop]
                squares += torch.linalg.vector_norm(part, dtype=squares.dtype).square()
        return squares

    def scale(self, by: float) -> None:
        """Multiplies all gradients by `by`."""
        self.own.mul_(by)

    def clip(self, norm: Tensor, *, limit: float) -> None:
        """Scales all gradients so that their norm, now `norm`, is at most `limit`; counts of visits
        stay what they are."""
        scale = (limit / (norm + 1e-6)).clamp(max=1.0)
        if not any(piece.steered for piece in self.pieces):
            self.own.mul_(scale)
            return
        for region in self.regions():
            if not region.steered:
                self.own[region.start : region.stop].mul_(scale)


def root(squares: Tensor, *, over: Axis | None, alike: Axis | None) -> Tensor:
    """The norm of what all ranks of `over` bring the squares of, each as often as `alike` has
    ranks."""
    if over is not None:
        dist.all_reduce(squares, group=over.group)
    return (squares if alike is None else squares / alike.size).sqrt()


class GradientBuffer(Owned):
    """Adds every gradient up in one buffer of `dtype`, and frees it in the model.

    Before: backward runs over any number of microbatches. After: `buffer` holds their sum.
    """

    owned: slice
    """The range whose sums are complete here and whose weights are updated here."""

    def __init__(self, weights: Weights, *, dtype: torch.dtype) -> None:
        self.weights = weights
        self.buffer = torch.zeros_like(weights.buffer, dtype=dtype)
        self.owned = slice(0, self.buffer.numel())
        for place in weights.places:
            parameter = weights.parameters[place.name]
            if parameter.requires_grad:
                view = weights.view(self.buffer, place)
                parameter.register_post_accumulate_grad_hook(_adder(view))

    @property
    def own(self) -> Tensor:
        return self.buffer[self.owned]

    @property
    def pieces(self) -> Sequence[Piece]:  # type: ignore[override]
        return self.weights.pieces(self.owned)

    def weights_of(self, region: Region) -> Tensor:
        return self.weights.buffer[self.owned][region.start : region.stop]

    def sum_whole(self, *, axis: Axis) -> None:
        """Sums the gradients of whole weights, of which each rank of `axis` has the share of its
        piece of the sequence: one all_reduce."""
        dist.all_reduce(self.buffer[self.weights.whole], group=axis.group)

    def sum(self, names: Collection[str], *, axis: Axis) -> None:
        """Sums the gradients of weights with these ends of names, of which each rank of `axis` has
        a share: one all_reduce. A rank that holds none of them sends nothing."""
        views = [
            self.weights.view(self.buffer, place).flatten()
            for place in self.weights.places
            if end_of(place.name) in names
        ]
        if not views or axis.size == 1:
            return
        together = views[0] if len(views) == 1 else torch.cat(views)
        dist.all_reduce(together, group=axis.group)
        if len(views) > 1:
            parts = together.split([len(view) for view in views])
            for view, part in zip(views, parts, strict=True):
                view.copy_(part)

    def clear(self) -> None:
        """Sets all gradients to zero."""
        self.buffer.zero_()


class Gradients(GradientBuffer):
    """Gradients that every rank of dp owns whole."""

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """The gradients in their own shapes."""
        for place in self.weights.places:
            yield place.name, self.weights.view(self.buffer, place)


class ShardedGradients(GradientBuffer):
    """Gradients of which each rank of `axis` owns an equal shard, once they are reduced.

    The weights are padded to a multiple of the size of `axis`.
    """

    def __init__(self, weights: Weights, *, dtype: torch.dtype, axis: Axis) -> None:
        super().__init__(weights, dtype=dtype)
        self.owned = shard_of(self.buffer, axis)

    def named(self) -> Iterator[Slice]:
        """The owned pieces, flat."""
        yield from slices(self)

    def reduce_scatter(self, *, axis: Axis) -> None:
        """Sums all gradients over `axis`, each rank its own shard: one reduce_scatter."""
        if self.buffer.numel():
            reduce_scatter(self.buffer[self.owned], self.buffer, group=axis.group)


def slices(gradients: Owned) -> Iterator[Slice]:
    """What is owned, weight by weight."""
    for piece in gradients.pieces:
        yield Slice(piece.place.name, piece.offset, gradients.own[piece.start : piece.stop])


def _adder(view: Tensor) -> Callable[[Tensor], None]:
    """Moves a parameter's gradient into `view`."""

    def add(parameter: Tensor) -> None:
        if parameter.grad is not None:  # else it is put off
            view.add_(parameter.grad)
            parameter.grad = None

    return add
