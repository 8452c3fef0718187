"""Single formulas against values computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log2
from typing import Any

import pytest
from parlay.compiler.ledger import flops
from parlay.compiler.ledger.time import collectives, gemm, shapes
from parlay.compiler.ledger.time.layer import domains_share
from parlay.compiler.ledger.time.machine import Machine, Wire
from parlay.compiler.ledger.time.parts import add, total
from parlay.compiler.spec.schema import Setting


def wire(size: int, rate: float, latency: float = 0.0, outside: float = 0.0) -> Wire:
    link = "fabric" if outside else "link"
    return Wire(size, rate, latency, latency, link, 450e9, outside)


@pytest.mark.parametrize(
    ("name", "size", "message", "rate", "seconds"),
    [
        ("all_gather", 8, 800e6, 100e9, 0.007),
        ("reduce_scatter", 2, 800e6, 100e9, 0.004),
        ("all_reduce", 8, 800e6, 100e9, 0.014),
        ("all_reduce", 4, 800e6, 50e9, 0.024),
        ("all_to_all", 8, 450e6, 450e9, 0.000875),
        ("send", 2, 100e6, 50e9, 0.002),
    ],
)
def test_ring_volumes(name: str, size: int, message: float, rate: float, seconds: float) -> None:
    assert collectives.seconds(name, wire(size, rate), message) == pytest.approx(seconds)


def test_one_rank_sends_nothing() -> None:
    assert collectives.seconds("all_reduce", wire(1, 1e9, 1e-3), 1e9) == 0.0


@pytest.mark.parametrize(("size", "hops"), [(8, 7), (64, 63), (1024, 1023)])
def test_gathers_pay_every_hop(size: int, hops: int) -> None:
    assert collectives.seconds("all_gather", wire(size, 1e30, 5e-6), 1) == pytest.approx(
        hops * 5e-6
    )


@pytest.mark.parametrize("size", [64, 256, 1024])
def test_all_reduce_takes_the_tree_where_it_is_shorter(size: int) -> None:
    took = collectives.seconds("all_reduce", wire(size, 1e30, 5e-6), 1)
    assert took == pytest.approx(4 * log2(size) * 5e-6)


def test_an_exchange_is_bound_by_the_slower_of_link_and_fabric() -> None:
    far = collectives.seconds("all_to_all", wire(16, 50e9, outside=0.5), 160e6, far=25e9)
    assert far == pytest.approx(150e6 * 0.5 / 25e9)


def test_a_token_goes_once_to_a_domain() -> None:
    from parlay.compiler.spec.resolve import resolve
    from parlay.dsl.parse import parse
    from parlay.dsl.source import Source

    file, _ = parse(Source("m.par", 'model from "deepseek-v3"'))
    model = resolve(file, lambda _: (None, ()))[0][0].spec.model
    assert model is not None and model.experts is not None
    eight = Wire(64, 50e9, 0.0, 0.0, "fabric", 450e9, 1 - 7 / 63)
    assert domains_share(model.experts, eight) == pytest.approx(0.5)  # node_limit = 4 of 8 experts


@pytest.mark.parametrize(
    ("m", "n", "k"), [(8192, 8192, 8192), (16384, 4096, 4096), (4096, 28672, 8192)]
)
def test_whole_tiles_lose_little(m: int, n: int, k: int) -> None:
    assert 1.0 <= gemm.lost(m, n, k, 132, 989e12) < 1.25


@pytest.mark.parametrize(
    ("worse", "better"),
    [((8192, 8190, 8192), (8192, 8192, 8192)), ((128, 512, 8192), (4096, 512, 8192))],
)
def test_shapes_that_fill_badly_lose_more(
    worse: tuple[int, int, int], better: tuple[int, int, int]
) -> None:
    assert gemm.lost(*worse, 132, 989e12) > gemm.lost(*better, 132, 989e12)


def test_a_thin_product_is_bound_by_bytes(job: Callable[..., Any]) -> None:
    spec, _ = job()
    machine = Machine.of(spec, units=132)
    thin = gemm.seconds(1, 8192, 8192, machine)
    assert thin >= 2 * 8192 * 8192 / 3.35e12
    assert gemm.seconds(0, 8192, 8192, machine) == 0.0


def test_the_rate_of_a_ring_grows_with_the_cards_its_ranks_own(job: Callable[..., Any]) -> None:
    spec, layout = job(nodes=4, batch=256)
    whole = Machine.of(spec, units=132).wire(layout, "dp_cp")
    spec, layout = job(nodes=4, parallel="tp = 8", batch=256)
    alone = Machine.of(spec, units=132).wire(layout, "dp_cp")
    assert whole.rate == pytest.approx(400e9)  # eight cards of 50 GB/s, below the link
    assert alone.rate == pytest.approx(50e9)


def test_oversubscription_slows_the_fabric(job: Callable[..., Any]) -> None:
    text = "fabric { kind = infiniband, oversubscription = 2.0 }"
    spec, layout = job(nodes=4, parallel="tp = 8", batch=256, fabric=text)
    assert Machine.of(spec, units=132).wire(layout, "dp_cp").rate == pytest.approx(25e9)


@pytest.mark.parametrize(("ep", "etp", "rows"), [(1, 1, 1024), (8, 1, 8192), (4, 2, 8192)])
def test_rows_of_an_expert(job: Callable[..., Any], ep: int, etp: int, rows: int) -> None:
    spec, _ = job(model="mixtral-8x7b", parallel=f"ep = {ep} etp = {etp} dp = 8")
    assert shapes.expert_rows(spec.model.experts, 4096, spec.parallel) == pytest.approx(rows)


def test_parts_add_up() -> None:
    found: dict[str, float] = {"gemm": 1.0}
    add(found, {"gemm": 2.0, "tp": 3.0}, 0.5)
    assert found == {"gemm": 2.0, "tp": 1.5}
    assert total(found, {"gemm": 2.0, "tp": 1.0}) == 5.5


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 512, 4095, 4096, 9000])
def test_scores_that_windows_leave(job: Callable[..., Any], every: int, size: int) -> None:
    """Pair by pair, over seven layers; the work of a token follows."""
    spec, _ = job()
    s = spec.train.seq
    window = Setting("window", {"size": size, "every": every})
    narrow = replace(spec, model=replace(spec.model, layers=7, window=window))
    plain = replace(spec, model=replace(spec.model, layers=7))
    of_window = sum(min(row + 1, size) for row in range(s))
    whole = s * (s + 1) // 2
    pairs = [whole if every > 1 and n % every == 0 else of_window for n in range(1, 8)]
    assert flops.seen(narrow.model, s) == pytest.approx(sum(pairs) / (7 * s * s), abs=1 / s)
    hidden = flops.per_token(plain, causal=True) - flops.per_token(narrow, causal=True)
    each = 12 * 7 * spec.model.heads * spec.model.head_dim
    assert hidden == pytest.approx(each * (whole - sum(pairs) / 7) / s, abs=each)
    assert ("window" in flops.convention(narrow)) == (size < s)
