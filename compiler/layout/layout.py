"""A spec laid out: grids, groups, places and stages, all in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field

from parlay.compiler.layout.groups import Group, Reach, kinds
from parlay.compiler.layout.orders import (
    dense_grid,
    expert_grid,
    needs_expert_grid,
    pipelines_agree,
    sharded_expert_grid,
    sharded_grid,
)
from parlay.compiler.layout.placement import Placement
from parlay.compiler.layout.stages import Stage, alike, counts_of, cut, rows_of
from parlay.compiler.spec.blocks.job import Spec
from parlay.runtime.axes import Grid


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every rank stands and with whom it forms groups; nothing in it is as long as the world.

    `dense` holds tp, cp, dp and pp, `expert` holds etp, ep, edp and pp, over the same ranks;
    `sharded` and `sharded_expert` are these with the ZeRO groups cut by `parallel.shard`. A job
    without experts may have an order that leaves no expert grid; then there are no such groups.
    `stages` stand in the order in which a microbatch passes them; empty for a model without a
    shape. `rows` are those of each pipeline rank by chunk, `alike` the pipeline ranks whose rows
    have the same layers and ends, ascending. `sizes` and `known` keep the answers of `size` and
    `reach`.
    """

    dense: Grid
    expert: Grid | None
    sharded: Grid
    sharded_expert: Grid | None
    placement: Placement
    stages: tuple[Stage, ...]
    rows: tuple[tuple[Stage, ...], ...]
    alike: tuple[tuple[int, ...], ...]
    kinds: dict[str, Group]
    sizes: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    known: dict[str, Reach] = field(default_factory=dict, compare=False, repr=False)

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.dense.world

    # ── Groups ────────────────────────────────────────────────────────────────

    def size(self, kind: str) -> int:
        """Ranks in one group of `kind`."""
        if kind not in self.sizes:
            self.sizes[kind] = self.kinds[kind].size
        return self.sizes[kind]

    def groups(self, kind: str) -> list[list[int]]:
        """Every group of `kind`, ascending; made on demand."""
        return self.kinds[kind].all()

    def group_of(self, kind: str, rank: int) -> list[int]:
        """The group of `kind` that `rank` belongs to; empty where it belongs to none."""
        return self.kinds[kind].of(rank)

    def reach(self, kind: str) -> Reach:
        """Nodes, domains and wires of the groups of `kind`, worked out once."""
        if kind not in self.known:
            self.known[kind] = self.kinds[kind].reach(self.placement)
        return self.known[kind]

    # ── One rank ──────────────────────────────────────────────────────────────

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where `rank` stands on every axis of both grids, the dense one first."""
        at = self.dense.coordinates(rank)
        return at if self.expert is None else at | self.expert.coordinates(rank)

    def peers(self, rank: int) -> dict[str, list[int]]:
        """The group of each kind, `world` apart, that `rank` shares with other ranks."""
        groups = {kind: group.of(rank) for kind, group in self.kinds.items() if kind != "world"}
        return {kind: ranks for kind, ranks in groups.items() if len(ranks) > 1}

    def stages_of(self, rank: int) -> tuple[Stage, ...]:
        """The stages that `rank` holds."""
        stage = self.dense.coordinate(rank, "pp")
        return self.rows[stage] if self.rows else ()

    def node_of(self, rank: int) -> int:
        """The node that `rank` runs on."""
        return self.placement.node_of(rank)

    def domain_of(self, rank: int) -> int:
        """The fast domain that `rank` is in."""
        return self.placement.domain_of(rank)


def lay_out(spec: Spec) -> Layout:
    """The layout of a spec whose degrees, order, shard and stages passed their checks.

    Without a shape of the model there are no stages; without `train` no sequence length enters the
    balance of `stages = auto`.
    """
    cluster, parallel, model = spec.cluster, spec.parallel, spec.model
    assert cluster is not None, "a layout needs a cluster"
    dense = dense_grid(parallel)
    assert dense.world == cluster.gpus, "a check lets no other product through"
    expert = expert_grid(parallel, world=cluster.gpus)
    if expert is None or not pipelines_agree(dense, expert):
        assert not needs_expert_grid(spec), "a check lets no such product or order through"
        expert = None
    sharded = sharded_grid(dense, parallel.shard)
    sharded_expert = None if expert is None else sharded_expert_grid(expert, sharded)
    stages: tuple[Stage, ...] = ()
    rows: tuple[tuple[Stage, ...], ...] = ()
    same: tuple[tuple[int, ...], ...] = ()
    if model is not None and model.layers is not None:
        counts = counts_of(model, parallel, seq=spec.train.seq if spec.train else None)
        stages = cut(counts, schedule=parallel.schedule, pp=parallel.pp)
        rows = rows_of(stages, pp=parallel.pp)
        same = alike(rows, model, schedule=parallel.schedule)
    return Layout(
        dense=dense,
        expert=expert,
        sharded=sharded,
        sharded_expert=sharded_expert,
        placement=Placement.of(cluster),
        stages=stages,
        rows=rows,
        alike=same,
        kinds={group.name: group for group in kinds(dense, sharded, expert, sharded_expert)},
    )
