"""Gradients that leave for the ranks that own them once a unit has all of its own (ZeRO-2 and 3).

Every microbatch is reduced: a rank adds up its shards, and holds whole gradients of two units at
most, the one that backward is in and the one under way.

Where gradients of weights are put off, a unit's other gradients wait for them, and go among them. A
table that two stages of this rank use, a tied embedding in a V, leaves when it has both gradients;
those of the head that came before go along, whichever microbatch they are of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from parlay.runtime import deferred
from parlay.runtime.collectives import reduce_scatter, together
from parlay.runtime.mesh import Axis
from parlay.runtime.shard import Owned, Slice, slices
from parlay.runtime.unit_members import FIRST_UNIT
from parlay.runtime.units import Unit, UnitWeights
from parlay.runtime.weights import Place, Region, end_of
from torch import Tensor


class _Sent(NamedTuple):
    """A unit's gradients under way."""

    unit: Unit
    work: Any
    shards: list[Tensor]
    whole: Tensor
    """Kept until the work is done."""


class ScatteredGradients(Owned):
    """The gradients of `weights` in `dtype`, of which `own` has this rank's shards.

    After a backward, `settle`; then `own` has the sums over `weights.axis` of all microbatches.
    Without `overlap` the backward waits for what it sends.
    """

    def __init__(self, weights: UnitWeights, *, dtype: torch.dtype, overlap: bool = True) -> None:
        self.weights, self.dtype, self.overlap = weights, dtype, overlap
        self.own = torch.zeros(weights.size, dtype=dtype, device=weights.device)
        self.pieces = weights.pieces
        self.whole: dict[Unit, Tensor] = {}
        self.missing: dict[Unit, int] = {}
        self.sent: _Sent | None = None
        for unit in weights.units:
            for place, parameter in zip(unit.places, unit.parameters, strict=True):
                parameter.register_post_accumulate_grad_hook(self._adder(unit, place))

    def regions(self) -> list[Region]:
        return self.weights.regions()

    def weights_of(self, region: Region) -> Tensor:
        return self.weights.owned(region)

    def named(self) -> Iterator[Slice]:
        """The owned pieces, flat."""
        yield from slices(self)

    def settle(self) -> None:
        """After: nothing is under way, and every unit has been reduced as often as backward ran."""
        self._receive()
        if self.whole:
            names = ", ".join(unit.name for unit in self.whole)
            raise RuntimeError(f"backward ended without all gradients of unit {names}")

    def sum_whole(self, *, axis: Axis) -> None:
        """Sums the gradients of whole weights, of which each rank of `axis` has the share of its
        piece of the sequence: one all_reduce."""
        self._sum([place for place in self.weights.places if place.cut is None], axis)

    def sum(self, names: Collection[str], *, axis: Axis) -> None:
        """Sums the gradients of weights with these ends of names, of which each rank of `axis` has
        a share: one all_reduce of the owned shards of copies, of the whole of others, which are
        small. A rank that holds none of them sends nothing."""
        places = [place for place in self.weights.places if end_of(place.name) in names]
        if not places or axis.size == 1:
            return
        if places[0].copies is None:
            self._sum(places, axis)
            return
        views = [
            self.own[segment.own]
            for unit in self.weights.units
            for segment in unit.segments
            if any(place in places and segment.has(place) for place in unit.places)
        ]
        joined = torch.cat(views)
        dist.all_reduce(joined, group=axis.group)
        for view, part in zip(views, joined.split([len(view) for view in views]), strict=True):
            view.copy_(part)

    def _sum(self, places: list[Place], axis: Axis) -> None:
        """All of the weights in one buffer, so that every rank sends as much: zero but for what is
        owned, which the ranks of `axis` own alike."""
        starts, at = {}, 0
        for place in places:
            starts[place.name] = at
            at += place.stop - place.start
        joined = self.own.new_zeros(at)
        pairs = []
        for piece in self.pieces:
            if (start := starts.get(piece.place.name)) is not None:
                start += piece.offset
                there = joined[start : start + piece.stop - piece.start]
                there.copy_(self.own[piece.start : piece.stop])
                pairs.append((self.own[piece.start : piece.stop], there))
        dist.all_reduce(joined, group=axis.group)
        for view, there in pairs:
            view.copy_(there)

    def clear(self) -> None:
        """Sets all gradients to zero."""
        self.own.zero_()

    # ── On the way ────────────────────────────────────────────────────────────

    def _adder(self, unit: Unit, place: Place) -> Callable[[Tensor], None]:
        """Moves a parameter's gradient into its unit's; the last one sends them."""

        def add(parameter: Tensor) -> None:
            if parameter.grad is None:  # it is put off
                return
            late = deferred.late()
            if late is not None and unit.name != FIRST_UNIT:
                gradient, parameter.grad = parameter.grad, None
                late.hold(lambda: self._add(unit, place, gradient))
            else:
                self._fill(unit, place, parameter.grad)
                parameter.grad = None
                self._count(unit)

        return add

    def _add(self, unit: Unit, place: Place, gradient: Tensor) -> None:
        self._fill(unit, place, gradient)
        self._count(unit)

    def _fill(self, unit: Unit, place: Place, gradient: Tensor) -> None:
        if unit not in self.whole:
            self.whole[unit] = torch.zeros(unit.numel, dtype=self.dtype, device=self.own.device)
            self.missing[unit] = unit.gradients
        self.whole[unit][place.start : place.stop].view(place.shape).add_(gradient)

    def _count(self, unit: Unit) -> None:
        """One gradient less is missing."""
        self.missing[unit] -= 1
        if not self.missing[unit]:
            self._send(unit)

    def _send(self, unit: Unit) -> None:
        if self.weights.gathers:
            unit.free()
        self._receive()
        whole = self.whole.pop(unit)
        if unit.axis is None:
            for segment in unit.segments:
                self.own[segment.own] += whole[segment.whole]
            return
        shards = [self.own.new_empty(s.own.stop - s.own.start) for s in unit.segments]
        pairs = [(shard, whole[s.whole]) for shard, s in zip(shards, unit.segments, strict=True)]
        work = together(reduce_scatter, pairs, group=unit.axis.group)
        self.sent = _Sent(unit, work, shards, whole)
        # The last of a stage would lie there throughout the next forward.
        ends = unit.ends_late if deferred.second() else unit.ends
        if ends or not self.overlap:
            self._receive()

    def _receive(self) -> None:
        """Adds what was sent last, once it is there."""
        if self.sent is not None:
            self.sent.work.wait()
            for shard, segment in zip(self.sent.shards, self.sent.unit.segments, strict=True):
                self.own[segment.own] += shard
            self.sent = None
