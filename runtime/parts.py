"""The weights and gradients of a rank in two parts: routed experts, and all else.

They are reduced over different ranks, edp and dp, so that each part is a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from parlay.runtime.mesh import Axis
from parlay.runtime.shard import Gradients, Owned, ShardedGradients, root
from parlay.runtime.weights import Piece, Place, Region, Weights
from torch import Tensor

Buffer = Gradients | ShardedGradients


class WeightParts:
    """`common` has what every token passes, `experts` the routed experts that this rank holds."""

    def __init__(self, *, common: Weights, experts: Weights) -> None:
        self.common, self.experts = common, experts

    @property
    def places(self) -> Sequence[Place]:
        """Of both parts."""
        return (*self.common.places, *self.experts.places)


class GradientParts(Owned):
    """The gradients of both parts; what a rank owns of experts counts behind what it owns of all
    else. Each part is reduced on its own."""

    def __init__(self, *, common: Buffer, experts: Buffer) -> None:
        self.common, self.experts = common, experts
        self.border = common.own.numel()
        self.pieces = (
            *common.pieces,
            *(_moved(piece, self.border) for piece in experts.pieces),
        )

    def regions(self) -> list[Region]:
        return [
            *self.common.regions(),
            *(_moved(region, self.border) for region in self.experts.regions()),
        ]

    def of(self, region: Region) -> Tensor:
        part, own = self._part(region)
        return part.of(own)

    def weights_of(self, region: Region) -> Tensor:
        part, own = self._part(region)
        return part.weights_of(own)

    def named(self) -> Iterator[Any]:
        """The gradients of both parts, as each of them names its own."""
        yield from self.common.named()
        yield from self.experts.named()

    def sum_whole(self, *, axis: Axis) -> None:
        """`sum_whole` of what is no expert's."""
        self.common.sum_whole(axis=axis)

    def sum(self, names: Collection[str], *, axis: Axis) -> None:
        """`sum` of what is no expert's."""
        self.common.sum(names, axis=axis)

    def norm(
        self,
        *,
        over: Axis | None = None,
        once: Axis | None = None,
        replicas: Axis | None = None,
        experts: Axis | None = None,
        alike: Axis | None = None,
    ) -> Tensor:
        """The norm of all gradients; `experts` are the ranks that own the same experts, which count
        on the first of them, and the rest is as in `Owned.norm`."""
        squares = self.common.squares(once=once, replicas=replicas)
        squares = squares + self.experts.squares(replicas=experts)
        return root(squares, over=over, alike=alike)

    def scale(self, by: float) -> None:
        for part in (self.common, self.experts):
            part.scale(by)

    def clip(self, norm: Tensor, *, limit: float) -> None:
        for part in (self.common, self.experts):
            part.clip(norm, limit=limit)

    def clear(self) -> None:
        """Sets all gradients to zero."""
        for part in (self.common, self.experts):
            part.clear()

    def _part(self, region: Region) -> tuple[Buffer, Region]:
        if region.start < self.border:
            return self.common, region
        return self.experts, _moved(region, -self.border)


Part = TypeVar("Part", Piece, Region)


def _moved(part: Part, by: int) -> Part:
    return part._replace(start=part.start + by, stop=part.stop + by)
