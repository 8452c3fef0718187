"""The grid against groups worked out another way: by looking at every rank."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parlay.runtime.axes import Grid

AXES = ("tp", "cp", "dp", "pp")


@st.composite
def grids(draw):
    names = draw(st.permutations(AXES))[: draw(st.integers(1, 4))]
    return Grid(tuple((name, draw(st.integers(1, 4))) for name in names))


@given(grids(), st.data())
def test_a_group_is_the_ranks_that_agree_on_all_other_axes(grid, data):
    axes = data.draw(st.lists(st.sampled_from(grid.axes), unique=True).map(tuple))
    # Counted out: the last factor of the product varies fastest.
    sizes = dict(grid.sizes)
    points = [
        dict(zip(reversed(grid.axes), point, strict=True))
        for point in itertools.product(*(range(sizes[name]) for name in reversed(grid.axes)))
    ]
    expected = {}
    for rank, point in enumerate(points):
        others = tuple(point[name] for name in grid.axes if name not in axes)
        expected.setdefault(others, []).append(rank)
    groups = grid.groups(axes)
    assert groups == sorted(expected.values())
    for rank, point in enumerate(points):
        assert grid.coordinates(rank) == point
        assert grid.rank_of(point) == rank
        assert {name: grid.coordinate(rank, name) for name in grid.axes} == point
        mine = grid.group_of(rank, axes)
        assert rank in mine
        assert mine in groups
        assert grid.first_of(rank, axes) == mine[0]
    assert grid.world == len(points)
    assert grid.size(*axes) == len(groups[0])


def test_megatron_order_tp_cp_dp_pp():
    """Groups that Megatron-Core 0.16.1 made of 16 ranks, tp 2, cp 2, pp 2."""
    grid = Grid((("tp", 2), ("cp", 2), ("dp", 2), ("pp", 2)))
    assert grid.groups(("tp",))[:3] == [[0, 1], [2, 3], [4, 5]]
    assert grid.groups(("dp",)) == [
        [0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15],
    ]  # fmt: skip
    assert grid.groups(("dp", "cp")) == [
        [0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15],
    ]  # fmt: skip
    assert grid.groups(("tp", "pp")) == [
        [0, 1, 8, 9],
        [2, 3, 10, 11],
        [4, 5, 12, 13],
        [6, 7, 14, 15],
    ]


def test_order_moves_an_axis():
    sizes = {"tp": 2, "dp": 2, "pp": 2}
    assert Grid.of(sizes, order=("tp", "dp", "pp")).stride("pp") == 4
    assert Grid.of(sizes, order=("tp", "pp", "dp")).stride("pp") == 2


def test_a_lookup_in_a_large_world_is_instant():
    grid = Grid((("tp", 8), ("cp", 4), ("dp", 64), ("pp", 64)))
    assert grid.world == 131_072
    start = time.process_time()
    for rank in range(0, grid.world, 4096):
        assert rank in grid.group_of(rank, ("tp", "pp"))
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "wrong",
    [
        lambda grid: grid.groups(("ep",)),
        lambda grid: grid.coordinates(8),
        lambda grid: grid.rank_of({"tp": 2}),
        lambda grid: Grid((("tp", 2), ("tp", 2))),
        lambda grid: Grid((("tp", 0),)),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"axis|rank|outside"):
        wrong(Grid((("tp", 2), ("pp", 4))))


def test_runs_of_a_plane_take_its_faster_axis_first() -> None:
    grid = Grid((("tp", 2), ("cp", 2), ("dp", 4)))
    runs = grid.runs("dp_cp", 2)
    assert runs[0] == [0, 2, 4, 6] and runs[1] == [8, 10, 12, 14]  # cp whole, half of dp
    assert grid.across("dp_cp", 2)[0] == [0, 8]
