"""Where ranks stand on a stem: its orders, and under each of them how state is cut over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from parlay.compiler.checks.degrees import degrees_hold, order_holds
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout import Group, Layout, Placement, lay_out
from parlay.compiler.layout.orders import (
    dense_grid,
    expert_grid,
    needs_expert_grid,
    pipelines_agree,
)
from parlay.compiler.ledger.memory.states import shards_of
from parlay.compiler.planner.asking import Asking
from parlay.compiler.planner.deciding import decided
from parlay.compiler.planner.sets import Place, Placed, Refused, Way
from parlay.compiler.planner.stem import Stem
from parlay.compiler.planner.stems import NO_GRID
from parlay.compiler.spec.blocks import Spec

WIRED: Final = ("tp", "cp", "ep", "etp")
"""The groups that layers talk over."""


class Placing:
    """The orders and places of stems, each worked out when it is asked for, and once."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self._ways: dict[int, tuple[Stem, tuple[Way, ...]]] = {}
        self._placed: dict[tuple[int, int], tuple[Stem, Placed]] = {}

    def ways(self, stem: Stem) -> tuple[Way, ...]:
        """Every order of a stem, and the wires of its layers' groups."""
        key = id(stem)  # the stem is kept with it, so that no other gets its number
        if key not in self._ways:
            self._ways[key] = stem, tuple(self._orders(stem))
        return self._ways[key][1]

    def apart(self, stem: Stem) -> tuple[Way, ...]:
        """The first order of those whose layers talk over the same wires."""
        found: dict[tuple[object, ...], Way] = {}
        for way in self.ways(stem):
            if way.layout is not None:
                found.setdefault(way.wires, way)
        return tuple(found.values())

    def _orders(self, stem: Stem) -> Iterator[Way]:
        subject = stem.subject
        for order in stem.lists["order"].ways:
            if order and self.asking.near and self.asking.far(subject, order) is not None:
                yield Way(order, None, ())
                continue
            ordered = decided(subject, order)
            layout = wired(ordered.spec)
            if layout is None:
                yield Way(order, None, ())
                continue
            reaches = (layout.reach(kind) for kind in WIRED if kind in layout.kinds)
            wires = tuple((r.size, r.nodes, r.domains, r.link) for r in reaches)
            yield Way(order, layout, wires)

    def of(self, stem: Stem, standing: Subject, way: Way) -> Placed:
        """The places of one order; `standing` is the job on any place that stands."""
        key = (id(stem), id(way))
        if key not in self._placed:
            self._placed[key] = stem, self._place(stem, standing, way)
        return self._placed[key][1]

    def _place(self, stem: Stem, standing: Subject, way: Way) -> Placed:
        asking, ways = self.asking, stem.lists["state"]
        ordered = decided(standing, way.order)
        code = asking.fault(asking.lists["order"], ordered)
        if code is not None:
            return Placed((), (Refused(code, way.order, len(ways.ways), (ways,)),))
        spec = replace(standing.spec, model=None)  # ranks and groups alone, no stages
        code_of = asking.of("state", ordered)
        cut: dict[int, Layout | None] = {}
        places: list[Place] = []
        refused: list[Refused] = []
        for state in ways.ways:
            zero = state.get("parallel.zero", ordered.parallel.zero)
            shard = state.get("parallel.shard", ordered.parallel.shard)
            if shard not in cut:
                each = decided(ordered, state)
                placed = replace(spec, parallel=each.parallel)
                cut[shard] = lay_out(placed) if degrees_hold(each) else None
            layout = cut[shard]
            code = code_of(state, layout)
            if code is not None or layout is None:
                refused.append(Refused(code or NO_GRID, {**way.order, **state}, 1, ()))
                continue
            places.append(Place(way.order, state, zero, shards_of(layout), layout))
        return Placed(tuple(places), tuple(refused))


def wired(spec: Spec) -> Layout | None:
    """The groups alone that layers talk over; None where the order makes no grid."""
    cluster, parallel = spec.cluster, spec.parallel
    assert cluster is not None
    if not order_holds(parallel):
        return None
    dense = dense_grid(parallel)
    expert = expert_grid(parallel, world=dense.world)
    if expert is None or not pipelines_agree(dense, expert):
        if needs_expert_grid(spec):
            return None
        expert = None
    groups = [Group("tp", dense, ("tp",)), Group("cp", dense, ("cp",))]
    if expert is not None:
        groups += [Group("ep", expert, ("ep",)), Group("etp", expert, ("etp",))]
    return Layout(
        dense=dense,
        expert=expert,
        sharded=dense,
        sharded_expert=None,
        placement=Placement.of(cluster),
        stages=(),
        rows=(),
        alike=(),
        kinds={group.name: group for group in groups},
    )
