"""The weights of one rank in units that are gathered and reduced on their own (ZeRO-2 and 3).

A unit is a layer, or what stands before the layers or behind them. Its weights lie end to end in
one buffer, padded to as many equal shards as there are ranks on `axis`. A rank owns one shard of
every unit; these shards, end to end, are what it keeps gradients, masters and optimizer state of.
With ZeRO-2 the buffers stay; with ZeRO-3 a unit has memory only from `gather` to `free`.

Copies, weights that several ranks of a replica hold alike, are padded on their own, so that each
rank owns as much of them as the others: their gradients are summed once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from parlay.runtime.collectives import all_gather, together
from parlay.runtime.mesh import Axis
from parlay.runtime.unit_members import FIRST_UNIT, shared_by, stages_of, units_of
from parlay.runtime.weights import (
    Copies,
    Dealt,
    Piece,
    Piecewise,
    Place,
    Region,
    copies_of,
    cut_of,
    order_of,
    regions,
    routed,
)
from torch import Tensor, nn


class Segment(NamedTuple):
    """A part of a unit that is cut into shards on its own."""

    whole: slice
    """In the buffer of the unit, padding included."""
    own: slice
    """This rank's shard, in what it owns of all units."""
    shard: slice
    """This rank's shard, in the buffer of the unit."""

    def has(self, place: Place) -> bool:
        """Whether the weight at `place` lies in it."""
        return self.whole.start <= place.start < self.whole.stop


class Unit:
    """Weights that travel together. `buffer` has memory while the unit is whole."""

    def __init__(
        self, name: str, weights: Sequence[tuple[str, nn.Parameter]], *, of: UnitWeights
    ) -> None:
        self.name, self.axis = name, of.axis_of(weights[0][0])
        """The ranks that share its state; None where this rank owns all of it."""
        self.gathers = of.gathers and self.axis is not None
        found: dict[int, list[tuple[str, nn.Parameter]]] = {}
        for one in sorted(weights, key=lambda one: order_of(one[0], one[1], of.cut_of(one[0]))):
            # Copies of one kind are a segment each, behind what is held once.
            found.setdefault(of.kind_of(one[0]), []).append(one)
        self.places: list[Place] = []
        self.parameters: list[nn.Parameter] = []
        self.segments: list[Segment] = []
        at, own = 0, of.size
        ranks, rank = (1, 0) if self.axis is None else (self.axis.size, self.axis.rank)
        for _, members in sorted(found.items()):
            start = at
            for member, parameter in members:
                stop = at + parameter.numel()
                dim, copies = of.cut_of(member), copies_of(member, of.copies)
                pieces = of.pieces_of(member)
                self.places.append(Place(member, parameter.shape, at, stop, dim, copies, pieces))
                self.parameters.append(parameter)
                at = stop
            size = -(-(at - start) // ranks)
            at = start + size * ranks
            mine = slice(start + rank * size, start + (rank + 1) * size)
            self.segments.append(Segment(slice(start, at), slice(own, own + size), mine))
            own += size
        self.numel = at
        self.stop = own
        """Where the next unit's shards start."""
        # A tensor of its own version: filling it again does not spoil what autograd has kept.
        self.buffer = torch.zeros(at, dtype=of.dtype, device=of.device)
        self.work: Any = None
        self.whole = True
        self.ends = False
        """Whether the backward of its stage ends with this unit."""
        self.ends_late = False
        """Whether gradients of its stage that were put off end with this unit: the first layer."""
        self.gradients = len(self.places)
        """How many gradients come of a microbatch: two of a weight that two stages use."""

    def gather(self, own: Tensor) -> None:
        """Starts to make the unit whole; `own` is what this rank owns of all units."""
        if self.whole or self.work is not None:
            return
        assert self.axis is not None
        storage = self.buffer.untyped_storage()
        storage.resize_(self.numel * self.buffer.itemsize)
        self.work = together(
            all_gather,
            [(self.buffer[s.whole], own[s.own]) for s in self.segments],
            group=self.axis.group,
        )

    def wait(self) -> None:
        """After: the unit is whole."""
        if self.work is not None:
            self.work.wait()
            self.work, self.whole = None, True

    def free(self) -> None:
        """After: the weights of the unit have no memory but this rank's shard."""
        self.wait()
        if self.whole and self.gathers:
            self.buffer.untyped_storage().resize_(0)
            self.whole = False

    def pieces(self) -> Iterator[Piece]:
        """What this rank owns of each weight."""
        for segment in self.segments:
            for place in filter(segment.has, self.places):
                first = max(place.start, segment.shard.start)
                last = min(place.stop, segment.shard.stop)
                if first < last:
                    start = segment.own.start + first - segment.shard.start
                    yield Piece(place, first - place.start, start, start + last - first)


class UnitWeights:
    """Allocates the parameters of `model`, built on the meta device, as views of units' buffers.

    `cut`, `copies` and `dealt` are those of `Weights`. With `gathers` a rank keeps its shards
    alone, and a unit is whole only between `gather` and `free`; without, all of them stay whole.
    The routed experts of a layer are a unit of their own, over the ranks `experts` that hold the
    same ones; where that is None each rank owns the experts that it holds, and keeps them whole.
    `trained` is that of `Weights`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        dtype: torch.dtype,
        device: torch.device,
        axis: Axis,
        gathers: bool,
        cut: Mapping[str, int] | None = None,
        copies: Copies = (),
        dealt: Dealt | None = None,
        experts: Axis | None = None,
        trained: bool | None = None,
    ) -> None:
        self.dtype, self.device, self.axis, self.gathers = dtype, device, axis, gathers
        self.cut, self.copies, self.dealt, self.experts = cut or {}, copies, dealt, experts
        self.size = 0
        """Elements that this rank owns, padding included."""
        self.units: list[Unit] = []
        views: dict[int, nn.Parameter] = {}
        shared = shared_by(stages_of(model))
        # What stays whole lies behind what is gathered, of which `own` has the shards.
        units = units_of(model, trained=trained)
        found = sorted(units, key=lambda one: self.axis_of(one[1][0][0]) is None)
        gathered, opens = 0, False
        for name, members, ends in found:
            opens = opens or ends
            unit = Unit(name, members, of=self)
            unit.ends, unit.ends_late = ends, name != FIRST_UNIT and opens
            opens = opens and not unit.ends_late
            unit.gradients += len(shared & {id(p) for p in unit.parameters})
            self.size = unit.stop
            gathered = unit.stop if unit.gathers else gathered
            self.units.append(unit)
            for n, (place, old) in enumerate(zip(unit.places, unit.parameters, strict=True)):
                view = unit.buffer[place.start : place.stop].view(place.shape)
                # Through `data`, whose version does not change where the buffer is filled again.
                views[id(old)] = unit.parameters[n] = nn.Parameter(view.data, old.requires_grad)
            if gathers:
                unit.free()
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) in views:
                    setattr(module, name, views[id(parameter)])
        self.places = tuple(place for unit in self.units for place in unit.places)
        self.pieces = tuple(piece for unit in self.units for piece in unit.pieces())
        self.unit_of = {id(p): unit for unit in self.units for p in unit.parameters}
        self.own: Tensor | None = None
        if gathers:
            self.own = torch.zeros(gathered, dtype=dtype, device=device)

    def axis_of(self, name: str) -> Axis | None:
        """The ranks that share a weight's state."""
        return self.experts if routed(name) else self.axis

    def cut_of(self, name: str) -> int | None:
        """The dim of a weight that tp cuts, or etp."""
        return cut_of(name, self.dealt.cut if self.dealt is not None and routed(name) else self.cut)

    def pieces_of(self, name: str) -> tuple[Piecewise, ...]:
        """How the weight of routed experts is cut."""
        return self.dealt.of(name) if self.dealt is not None and routed(name) else ()

    def kind_of(self, name: str) -> int:
        """0 for what a replica holds once, else which copies a weight is one of."""
        axis = copies_of(name, self.copies)
        return 0 if axis is None else 1 + [one for _, one in self.copies].index(axis)

    def owned(self, region: Region) -> Tensor:
        """This rank's weights of a region of what it owns; the memory that its update writes."""
        if self.own is not None and region.start < len(self.own):
            return self.own[region.start : region.stop]
        for unit in self.units:
            for segment in unit.segments:
                if segment.own.start <= region.start < segment.own.stop:
                    at = segment.shard.start + region.start - segment.own.start
                    return unit.buffer[at : at + region.stop - region.start]
        raise ValueError(f"no unit has the elements from {region.start} on")

    def regions(self) -> list[Region]:
        """What this rank owns as runs, inside of segments, that decay and that do not."""
        borders = {segment.own.start for unit in self.units for segment in unit.segments}
        return regions(self.pieces, borders=borders)

    @contextmanager
    def drawn(self, parameter: nn.Parameter) -> Iterator[slice | None]:
        """Inside, `parameter` has memory, and this rank's shard of it, which is given, is to be
        filled; after, the shard is kept. Drawing all of every weight would take each of 512 ranks
        as long as one alone."""
        unit = self.unit_of.get(id(parameter))
        if self.own is None or unit is None or not unit.gathers:
            yield None
            return
        place = unit.places[[id(one) for one in unit.parameters].index(id(parameter))]
        piece = next((piece for piece in unit.pieces() if piece.place == place), None)
        size = 0 if piece is None else piece.stop - piece.start
        offset = 0 if piece is None else piece.offset
        unit.buffer.untyped_storage().resize_(unit.numel * unit.buffer.itemsize)
        unit.whole = True
        yield slice(offset, offset + size)
        if piece is not None:
            at = place.start + offset
            self.own[piece.start : piece.stop] = unit.buffer[at : at + size]
        unit.free()

    def all_gather(self) -> None:
        """Each rank has updated its shards of units that stay whole; after, all have all."""
        works = [
            together(
                all_gather,
                [(unit.buffer[s.whole], unit.buffer[s.shard]) for s in unit.segments],
                group=unit.axis.group,
            )
            for unit in self.units
            if unit.axis is not None
        ]
        for work in works:
            work.wait()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, all weights are whole; every rank of the axis has to come here."""
        for unit in self.units:
            if self.own is not None:
                unit.gather(self.own)
        for unit in self.units:
            unit.wait()
        yield
        for unit in self.units:
            if self.gathers:
                unit.free()
