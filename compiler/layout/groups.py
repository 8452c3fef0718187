"""Groups of ranks by name: which axes of which grid each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parlay.compiler.layout.placement import Placement, Wire
from parlay.compiler.layout.reach import ONE, Axes, Spread, nested, spread
from parlay.runtime.axes import Grid


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the groups of one kind reach.

    `nodes` and `domains` are those that one group touches, at worst; `link` is its slowest wire.
    `groups_per_nic` is how many groups share one network card, 0 where none of them needs one; it
    is a mean where groups lie unevenly, and below 1 where a group has several cards.
    """

    size: int
    count: int
    nodes: int
    domains: int
    link: Wire
    groups_per_nic: float


@dataclass(frozen=True, slots=True)
class Group:
    """The groups of one kind: lines or planes of a grid.

    `ends` keeps the first and the last rank of each line alone.
    """

    name: str
    grid: Grid
    axes: tuple[str, ...]
    ends: bool = False

    @property
    def size(self) -> int:
        """Ranks in one group."""
        size = self.grid.size(*self.axes)
        return min(size, 2) if self.ends else size

    @property
    def count(self) -> int:
        """How many groups of this kind there are."""
        return self.grid.world // self.grid.size(*self.axes)

    def all(self) -> list[list[int]]:
        """Every group, ascending; made on demand."""
        return [self._kept(group) for group in self.grid.groups(self.axes)]

    def of(self, rank: int) -> list[int]:
        """The group that `rank` belongs to; empty where it belongs to none."""
        group = self._kept(self.grid.group_of(rank, self.axes))
        return group if rank in group else []

    def _kept(self, group: list[int]) -> list[int]:
        return [group[0], group[-1]] if self.ends and len(group) > 2 else group

    def spread(self, unit: int) -> Spread:
        """How many blocks of `unit` consecutive ranks one group touches."""
        if self.size == 1:
            return ONE
        even = nested(self.grid.sizes, self.axes, unit, ends=self.ends)
        return spread(*self._lattice(), unit) if even is None else even

    def reach(self, placement: Placement) -> Reach:
        """Nodes, domains and wires of these groups."""
        over = self.spread(placement.node)
        inner = over if placement.domain == placement.node else self.spread(placement.domain)
        nodes, domains = over.worst, inner.worst
        link = placement.wire(nodes=nodes, domains=domains)
        count = self.count
        return Reach(
            size=self.size,
            count=count,
            nodes=nodes,
            domains=domains,
            link=link,
            groups_per_nic=self._per_nic(placement, count, over) if link == "fabric" else 0.0,
        )

    def _per_nic(self, placement: Placement, count: int, over: Spread) -> float:
        """Groups that one card serves: each of `count` counts on every card it touches."""

        def per_block(unit: int) -> float:
            """The mean number of groups that touch a block of `unit` ranks."""
            touched = over if unit == placement.node else self.spread(unit)
            return float(count * touched.mean * unit / placement.world)

        if not placement.nics:
            return per_block(placement.node)
        served, rest = divmod(placement.node, placement.nics)
        if placement.own_nic and served and rest == 0:
            return per_block(served)
        if placement.own_nic and placement.nics % placement.node == 0:
            return per_block(1) * placement.node / placement.nics
        return per_block(placement.node) / placement.nics

    def _lattice(self) -> tuple[Axes, Axes]:
        """Strides and sizes of the axes inside a group, and of the others."""
        inside: list[tuple[int, int]] = []
        outside: list[tuple[int, int]] = []
        stride = 1
        for name, size in self.grid.sizes:
            (inside if name in self.axes else outside).append((stride, size))
            stride *= size
        if self.ends:
            inside = [(stride * (size - 1), 2) for stride, size in inside if size > 1]
        return tuple(inside), tuple(outside)


def kinds(
    dense: Grid, sharded: Grid, expert: Grid | None, sharded_expert: Grid | None
) -> Iterator[Group]:
    """Every kind of group of a layout.

    `dp_cp` is the ZeRO group of dense parameters and `edp` that of the experts; `shard` and
    `replicate` (`expert_shard`, `expert_replicate`) are their two parts. `tp_pp` is one replica
    without cp, `model` with it. `embedding` joins the first and the last pipeline rank.
    """
    yield Group("tp", dense, ("tp",))
    yield Group("cp", dense, ("cp",))
    yield Group("pp", dense, ("pp",))
    yield Group("dp", dense, ("dp",))
    yield Group("dp_cp", dense, ("dp", "cp"))
    yield Group("tp_cp", dense, ("tp", "cp"))
    yield Group("tp_pp", dense, ("tp", "pp"))
    yield Group("model", dense, ("tp", "cp", "pp"))
    yield Group("shard", sharded, ("cp", "dp"))
    yield Group("replicate", sharded, ("cp_replicate", "dp_replicate"))
    if expert is not None:
        yield Group("ep", expert, ("ep",))
        yield Group("etp", expert, ("etp",))
        yield Group("etp_ep", expert, ("etp", "ep"))
        yield Group("edp", expert, ("edp",))
    if sharded_expert is not None:
        parts = [axis for axis in sharded_expert.axes if axis.startswith("edp")]
        replicate = tuple(axis for axis in parts if axis.startswith("edp_replicate"))
        shard = tuple(axis for axis in parts if axis not in replicate)
        yield Group("expert_shard", sharded_expert, shard)
        yield Group("expert_replicate", sharded_expert, replicate)
    yield Group("embedding", dense, ("pp",), ends=True)
    yield Group("world", dense, dense.axes)
