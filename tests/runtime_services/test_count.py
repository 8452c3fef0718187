"""What a rank sends is counted whole: collectives, messages, backward, coalesced, functional."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from parlay.runtime.axes import Grid  # noqa: E402
from parlay.runtime.count import Counter, axes_of, named_groups  # noqa: E402
from parlay.runtime.local import run_ranks  # noqa: E402

Row = tuple[str, str, str, int, int]


def counted(body: Any, *, world: int = 2) -> list[Row]:
    """The rows of rank 0 of `body(rank, pair)`; `pair` is a group of all ranks named "tp"."""

    def target(rank: int) -> list[dict[str, Any]]:
        dist.init_process_group("gloo")
        pair = dist.new_group(list(range(world)))
        with Counter({pair.group_name: "tp"}) as counter:
            body(rank, pair)
        return counter.rows()

    rows = run_ranks(target, world, timeout=60)[0]
    return [
        (row["group"], row["collective"], row["dtype"], row["calls"], row["bytes"]) for row in rows
    ]


@pytest.mark.distributed
def test_collectives_and_their_bytes() -> None:
    def body(rank: int, pair: Any) -> None:
        four, two, eight = (torch.ones(size) for size in (4, 2, 8))
        dist.all_reduce(four, group=pair)
        dist.all_reduce(four.long(), group=pair, async_op=True).wait()
        dist.all_gather_single(eight, four, group=pair)
        dist.all_gather([four, four.clone()], four, group=pair)
        dist.reduce_scatter_single(two, four, group=pair)
        dist.reduce_scatter(four, [four, four.clone()], group=pair)
        dist.all_to_all_single(four.clone(), four, group=pair)
        dist.broadcast(four, 0, group=pair)
        dist.reduce(four, 0, group=pair)
        dist.barrier(group=pair)

    assert counted(body) == [
        ("tp", "all_gather", "float32", 2, 64),
        ("tp", "all_reduce", "float32", 1, 16),
        ("tp", "all_reduce", "int64", 1, 32),
        ("tp", "all_to_all", "float32", 1, 16),
        ("tp", "barrier", "none", 1, 0),
        ("tp", "broadcast", "float32", 1, 16),
        ("tp", "reduce", "float32", 1, 16),
        ("tp", "reduce_scatter", "float32", 2, 48),
    ]


@pytest.mark.distributed
def test_messages_alone_and_as_a_batch() -> None:
    def body(rank: int, pair: Any) -> None:
        x, y = torch.ones(4), torch.ones(4, dtype=torch.bfloat16)
        if rank == 0:
            dist.send(x, group=pair, group_dst=1)
            dist.recv(x, group=pair, group_src=1)
        else:
            dist.recv(x, group=pair, group_src=0)
            dist.send(x, group=pair, group_dst=0)
        ops = [
            dist.P2POp(dist.isend, y, 1 - rank, pair),
            dist.P2POp(dist.irecv, torch.ones_like(y), 1 - rank, pair),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    assert counted(body) == [
        ("tp", "recv", "bfloat16", 1, 8),
        ("tp", "recv", "float32", 1, 16),
        ("tp", "send", "bfloat16", 1, 8),
        ("tp", "send", "float32", 1, 16),
    ]


@pytest.mark.distributed
def test_backward_counts() -> None:
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, group: Any) -> Any:
            ctx.group = group
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=ctx.group)
            return gradient, None

    def body(rank: int, pair: Any) -> None:
        x = torch.ones(4, dtype=torch.float64, requires_grad=True)
        Sum.apply(Sum.apply(x, pair), pair).sum().backward()

    assert counted(body) == [("tp", "all_reduce", "float64", 2, 64)]


@pytest.mark.distributed
def test_coalesced_is_one_call() -> None:
    def body(rank: int, pair: Any) -> None:
        with dist.distributed_c10d._coalescing_manager(group=pair):
            dist.all_reduce(torch.ones(4), group=pair)
            dist.all_reduce(torch.ones(6), group=pair)

    assert counted(body) == [("tp", "all_reduce", "float32", 1, 40)]


@pytest.mark.distributed
def test_functional_collectives_and_their_backward() -> None:
    from torch.distributed import _functional_collectives as functional

    def body(rank: int, pair: Any) -> None:
        functional.all_reduce(torch.ones(4), "sum", pair).sum()
        x = torch.ones(4, requires_grad=True)
        functional.all_gather_single_autograd(x, 0, pair).sum().backward()

    assert counted(body) == [
        ("tp", "all_gather", "float32", 1, 32),
        ("tp", "all_reduce", "float32", 1, 16),
        ("tp", "reduce_scatter", "float32", 1, 32),
    ]


@pytest.mark.distributed
def test_group_without_a_name_is_unknown_and_a_group_of_one_is_silent() -> None:
    def body(rank: int, pair: Any) -> None:
        dist.all_reduce(torch.ones(4))
        for other in range(2):
            alone = dist.new_group([other])
            if other == rank:
                dist.all_reduce(torch.ones(4), group=alone)

    rows = counted(body)
    assert ("unknown", "all_reduce", "float32", 1, 16) in rows
    assert {row[1] for row in rows if row[1] != "barrier"} == {"all_reduce"}


@pytest.mark.distributed
def test_groups_are_named_by_their_members() -> None:
    grid = Grid((("tp", 2), ("dp", 2)))

    def target(rank: int) -> list[str]:
        dist.init_process_group("gloo")
        dist.new_group([0, 1])
        dist.new_group([2, 3])
        dist.new_group([0, 2])
        dist.new_group([0, 3])
        return sorted(named_groups(grid).values())

    found = run_ranks(target, 4, timeout=60)
    assert found == [["dp", "tp", "tp_dp"], ["tp", "tp_dp"], ["dp", "tp", "tp_dp"], ["tp", "tp_dp"]]


def test_axes_of_members() -> None:
    grid = Grid((("tp", 2), ("dp", 1), ("cp", 2), ("pp", 2)))
    assert axes_of([0, 1], grid=grid) == "tp"
    assert axes_of([1, 5], grid=grid) == "pp"
    assert axes_of([4, 5, 6, 7], grid=grid) == "tp_cp"
    assert axes_of(list(range(8)), grid=grid) == "tp_cp_pp"
    assert axes_of([3], grid=grid) == ""
    assert axes_of([0, 3], grid=grid) is None
    assert axes_of([0, 1, 2], grid=grid) is None


def test_parts_of_a_plane_are_named_by_their_members() -> None:
    grid = Grid((("tp", 2), ("cp", 2), ("dp", 4)))
    assert axes_of([0, 2, 4, 6], grid=grid) == "cp_dp/4"
    assert axes_of([0, 8], grid=grid) == "dp%2"
    assert axes_of([0, 2, 12, 14], grid=grid) is None
