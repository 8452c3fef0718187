"""What holds for every layout: partitions, planes of lines, closed forms against brute force."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.layout.balance import split
from parlay.compiler.layout.orders import (
    dense_grid,
    expert_data_parallel,
    expert_grid,
    pipelines_agree,
    shard_parts,
)
from parlay.compiler.spec.blocks import Spec

Job = Callable[..., Spec]
_few = settings(
    max_examples=settings.default.max_examples * 3 // 10,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
SIZES = st.sampled_from([1, 2, 3, 4, 6])


@st.composite
def degrees(draw: st.DrawFn) -> dict[str, object]:
    """Degrees whose dense product is the world; the expert side may not fit."""
    sizes = {axis: draw(SIZES) for axis in ("tp", "cp", "pp", "dp")}
    world = sizes["tp"] * sizes["cp"] * sizes["pp"] * sizes["dp"]
    per_node = draw(st.sampled_from([size for size in (1, 2, 3, 4, 6, 8) if world % size == 0]))
    order = draw(st.permutations(["tp", "cp", "dp", "pp", "ep"]))
    zero = sizes["dp"] * sizes["cp"]
    return {
        "gpus": world,
        "per_node": per_node,
        "domain": draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
        "ep": draw(SIZES),
        "etp": draw(st.sampled_from([1, 2, 3, sizes["tp"]])),
        "shard": draw(st.sampled_from([size for size in range(1, zero + 1) if zero % size == 0])),
        "order": tuple(axis for axis in order if axis != "ep" or draw(st.booleans())),
        **sizes,
    }


def _laid_out(job: Job, fields: dict[str, object]) -> Layout:
    spec = job(**fields)
    dense = dense_grid(spec.parallel)
    expert = expert_grid(spec.parallel, world=dense.world)
    assume(expert is not None and pipelines_agree(dense, expert))
    assume(shard_parts(dense, spec.parallel.shard) is not None)
    return lay_out(spec)


@_few
@given(fields=degrees())
def test_groups_partition_the_ranks(job: Job, fields: dict[str, object]) -> None:
    layout = _laid_out(job, fields)
    for kind, group in layout.kinds.items():
        groups = group.all()
        ranks = sorted(rank for ranks in groups for rank in ranks)
        if kind == "embedding" and layout.size("pp") > 2:
            assert len(ranks) == len(set(ranks)) == 2 * group.count
        else:
            assert ranks == list(range(layout.world))
        assert len(groups) == group.count
        assert all(len(ranks) == group.size for ranks in groups)


@_few
@given(fields=degrees(), data=st.data())
def test_coordinates_and_groups_of_a_rank(
    job: Job, fields: dict[str, object], data: st.DataObject
) -> None:
    layout = _laid_out(job, fields)
    rank = data.draw(st.integers(0, layout.world - 1))
    at = layout.coordinates(rank)
    assert layout.expert is not None
    for grid in (layout.dense, layout.expert):
        assert grid.rank_of({axis: at[axis] for axis in grid.axes}) == rank
    for kind, group in layout.kinds.items():
        holding = [ranks for ranks in group.all() if rank in ranks]
        assert holding == ([layout.group_of(kind, rank)] if layout.group_of(kind, rank) else [])


@_few
@given(fields=degrees())
def test_planes_are_unions_of_lines(job: Job, fields: dict[str, object]) -> None:
    layout = _laid_out(job, fields)
    dense = layout.dense
    for count in (2, 3, 4):
        for axes in combinations(dense.axes, count):
            for plane in dense.groups(axes):
                ranks = set(plane)
                for axis in axes:
                    assert all(ranks >= set(dense.group_of(rank, [axis])) for rank in plane)


@_few
@given(fields=degrees())
def test_zero_groups_split_in_shard_and_replicate(job: Job, fields: dict[str, object]) -> None:
    layout = _laid_out(job, fields)
    assert layout.size("shard") == fields["shard"]
    assert layout.size("shard") * layout.size("replicate") == layout.size("dp_cp")
    if "expert_shard" not in layout.kinds:
        return
    assert layout.size("expert_shard") * layout.size("expert_replicate") == layout.size("edp")
    parts = ("cp_replicate", "dp_replicate")
    for ranks in layout.groups("expert_shard"):
        cells = {tuple(layout.sharded.coordinate(rank, part) for part in parts) for rank in ranks}
        assert len(cells) == 1
    for ranks in layout.groups("expert_replicate"):
        cells = {tuple(layout.sharded.coordinate(rank, part) for part in parts) for rank in ranks}
        assert len(cells) == len(ranks)


@_few
@given(fields=degrees())
def test_spreads_match_brute_force(job: Job, fields: dict[str, object]) -> None:
    layout = _laid_out(job, fields)
    for group in layout.kinds.values():
        for unit in (1, 2, 3, 5, 8, 12, layout.placement.node, layout.placement.domain):
            touched = [len({rank // unit for rank in ranks}) for ranks in group.all()]
            spread = group.spread(unit)
            assert spread.worst == max(touched)
            assert spread.mean == Fraction(sum(touched), len(touched))


@_few
@given(fields=degrees())
def test_pipelines_agree_exactly_where_the_sets_do(job: Job, fields: dict[str, object]) -> None:
    parallel = job(**fields).parallel
    dense = dense_grid(parallel)
    expert = expert_grid(parallel, world=dense.world)
    edp = expert_data_parallel(world=dense.world, etp=parallel.etp, ep=parallel.ep, pp=parallel.pp)
    assert (expert is None) == (edp is None)
    if expert is not None:
        equal = dense.groups(["pp"]) == expert.groups(["pp"])
        assert pipelines_agree(dense, expert) == equal


@_few
@given(
    costs=st.lists(st.integers(1, 20), min_size=1, max_size=9),
    steps=st.integers(1, 5),
    last=st.integers(0, 30),
)
def test_split_is_exact(costs: list[int], steps: int, last: int) -> None:
    assume(steps <= len(costs))

    def price(ends: tuple[int, ...]) -> tuple[int, int]:
        bounds = [0, *ends, len(costs)]
        runs = [sum(costs[a:b]) for a, b in pairwise(bounds)]
        runs[-1] += last
        return max(runs), sum(run * run for run in runs)

    counts = split(costs, steps, last=last)
    assert len(counts) == steps and sum(counts) == len(costs) and min(counts) > 0
    ends = tuple(sum(counts[: step + 1]) for step in range(steps - 1))
    best = min(price(cuts) for cuts in combinations(range(1, len(costs)), steps - 1))
    assert price(ends) == best
