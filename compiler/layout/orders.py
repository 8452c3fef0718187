"""The two grids of one world: which axes, in which order, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from parlay.compiler.spec.blocks.job import Spec
from parlay.compiler.spec.blocks.parallel import Parallel
from parlay.runtime.axes import Grid

DENSE = ("tp", "cp", "dp", "pp")


def dense_order(order: Sequence[str]) -> tuple[str, ...]:
    """The dense axes in the file's order, fastest first; those it leaves out come last.

    `[tp, pp, dp]` --> `tp pp dp cp`
    """
    named = [axis for axis in order if axis in DENSE]
    return (*named, *(axis for axis in DENSE if axis not in named))


def expert_order(order: Sequence[str]) -> tuple[str, ...]:
    """The expert axes that follow from the file's order, fastest first.

    etp stands in tp's place, edp in dp's, cp is dropped, ep stands where `order` names it, else
    just before edp. An axis that `order` leaves out has size 1 in the dense grid alone: tp counts
    as the fastest, dp as just before pp, so that the pipeline groups stay together.

    `[tp, cp, dp, pp]` --> `etp ep edp pp`
    """
    names = [axis for axis in order if axis != "cp"]
    if "tp" not in names:
        names.insert(0, "tp")
    if "pp" not in names:
        names.append("pp")
    if "dp" not in names:
        names.insert(names.index("pp"), "dp")
    if "ep" not in names:
        names.insert(names.index("dp"), "ep")
    return tuple({"tp": "etp", "dp": "edp"}.get(axis, axis) for axis in names)


def expert_data_parallel(*, world: int, etp: int, ep: int, pp: int) -> int | None:
    """edp, from `etp · ep · edp · pp = world`; None where no whole number fits."""
    taken = etp * ep * pp
    return world // taken if world % taken == 0 else None


def dense_grid(parallel: Parallel) -> Grid:
    """The grid of tp, cp, dp and pp."""
    sizes = {axis: getattr(parallel, axis) for axis in DENSE}
    return Grid.of(sizes, order=dense_order(parallel.order))


def expert_grid(parallel: Parallel, *, world: int) -> Grid | None:
    """The grid of etp, ep, edp and pp over the same ranks; None where edp has no whole size."""
    edp = expert_data_parallel(world=world, etp=parallel.etp, ep=parallel.ep, pp=parallel.pp)
    if edp is None:
        return None
    sizes = {"etp": parallel.etp, "ep": parallel.ep, "edp": edp, "pp": parallel.pp}
    return Grid.of(sizes, order=expert_order(parallel.order))


def needs_expert_grid(spec: Spec) -> bool:
    """Whether experts have to be placed: the model has some, or ep or etp is above 1."""
    has_experts = spec.model is not None and spec.model.experts is not None
    return has_experts or spec.parallel.ep > 1 or spec.parallel.etp > 1


def pipelines_agree(dense: Grid, expert: Grid) -> bool:
    """Whether the pipeline groups of both grids are the same sets of ranks.

    Two lines of equal size through every rank are the same sets exactly where their strides are.
    """
    return dense.size("pp") == 1 or dense.stride("pp") == expert.stride("pp")


# ── Cutting the ZeRO group ────────────────────────────────────────────────────


def shard_axes(dense: Grid) -> tuple[str, str]:
    """cp and dp, the faster one first: the order in which `shard` takes ranks."""
    first, second = sorted(("cp", "dp"), key=dense.axes.index)
    return first, second


def shard_parts(dense: Grid, shard: int) -> tuple[int, int] | None:
    """How many ranks of the faster and of the slower of cp and dp share one copy of the state.

    None where `shard` ranks, fastest first, are no plane of the grid: then neither does `shard`
    divide the faster axis, nor is it a whole number of those with the rest dividing the slower.
    """
    first, second = shard_axes(dense)
    if dense.size(first) % shard == 0:
        return shard, 1
    rest, left = divmod(shard, dense.size(first))
    if left == 0 and dense.size(second) % rest == 0:
        return dense.size(first), rest
    return None


def sharded_grid(dense: Grid, shard: int) -> Grid:
    """The dense grid with cp and dp each cut in a shard part and, above it, a replicate part.

    Before: `tp=2 cp=1 dp=8 pp=1`, shard 4
    After:  `tp=2 cp=1 cp_replicate=1 dp=4 dp_replicate=2 pp=1`
    """
    parts = shard_parts(dense, shard)
    assert parts is not None, "a check lets no such shard through"
    inside = dict(zip(shard_axes(dense), parts, strict=True))
    sizes: list[tuple[str, int]] = []
    for name, size in dense.sizes:
        if name in inside:
            sizes.append((name, inside[name]))
            sizes.append((f"{name}_replicate", size // inside[name]))
        else:
            sizes.append((name, size))
    return Grid(tuple(sizes))


def sharded_expert_grid(expert: Grid, sharded: Grid) -> Grid | None:
    """The expert grid with edp cut where the dense grid's replicate parts begin and end.

    Ranks of edp that lie in one shard part of the dense grid (whatever their tp) share one copy of
    the experts' state; the rest replicate. The parts are called `edp`, `edp1`, … and
    `edp_replicate`, `edp_replicate1`, …. None where the two grids have no common digits: where the
    strides of both, in order, do not divide each other.
    """
    if all(sharded.size(f"{axis}_replicate") == 1 for axis in ("cp", "dp")):
        return expert
    strides = {grid.stride(axis) for grid in (expert, sharded) for axis in grid.axes}
    bounds = sorted(strides | {expert.world})
    if any(high % low for low, high in pairwise(bounds)):
        return None
    sizes: list[tuple[str, int]] = []
    seen = {"edp": 0, "edp_replicate": 0}
    for name, size in expert.sizes:
        if name != "edp":
            sizes.append((name, size))
            continue
        low = expert.stride("edp")
        for start, end in pairwise(bounds):
            if low <= start < low * size:
                kind = "edp_replicate" if _replicates(sharded, start) else "edp"
                sizes.append((f"{kind}{seen[kind] or ''}", end // start))
                seen[kind] += 1
    return Grid(tuple(sizes))


def _replicates(sharded: Grid, stride: int) -> bool:
    """Whether the digit of the dense grid at `stride` is a replicate part."""
    return any(
        axis.endswith("_replicate")
        and sharded.stride(axis) <= stride < sharded.stride(axis) * sharded.size(axis)
        for axis in sharded.axes
    )
