"""A calibration in the place of the table: each figure moves exactly the lines that it is of."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import pytest
from parlay.compiler.ledger.document import Ledger
from parlay.compiler.ledger.time import efficiency, gemm
from parlay.compiler.ledger.time.machine import Machine

Booked = Callable[..., Ledger]

CALL = "{ bandwidth = 100GB/s latency = 3us }"
FIGURES = {
    "bf16": "bf16 { rate = 500TFLOP/s size = 8192 }",
    "copy": "copy = 2TB/s",
    "link.all_reduce": f"link {{ ranks = 8 all_reduce {CALL} }}",
    "link.all_gather": f"link {{ ranks = 8 all_gather {CALL} }}",
    "link.reduce_scatter": f"link {{ ranks = 8 reduce_scatter {CALL} }}",
    "link.all_to_all": f"link {{ ranks = 8 all_to_all {CALL} }}",
    "fabric.send": f"fabric {{ ranks = 16 send {CALL} }}",
    "fabric.all_gather": f"fabric {{ ranks = 16 all_gather {CALL} }}",
    "fabric.reduce_scatter": f"fabric {{ ranks = 16 reduce_scatter {CALL} }}",
}
MEMORY = {"pointwise", "permute", "loss", "accumulate", "optimizer"}
MOVED: dict[str, tuple[set[str], set[tuple[str, str, str]]]] = {
    # Components of the step; link, group and collective of messages.
    "bf16": ({"gemm"}, set()),
    "copy": (MEMORY, set()),
    "link.all_reduce": (set(), {("link", "tp", "all_reduce")}),
    "link.all_gather": ({"tp"}, {("link", "tp", "all_gather")}),
    "link.reduce_scatter": ({"tp"}, {("link", "tp", "reduce_scatter")}),
    "link.all_to_all": ({"ep"}, {("link", "ep", "all_to_all")}),
    "fabric.send": ({"pp"}, {("fabric", "pp", "send"), ("fabric", "pp", "recv")}),
    "fabric.all_gather": (
        {"dp"},
        {("fabric", "dp", "all_gather"), ("fabric", "edp", "all_gather")},
    ),
    "fabric.reduce_scatter": (
        {"dp"},
        {("fabric", "dp", "reduce_scatter"), ("fabric", "edp", "reduce_scatter")},
    ),
}
# Stages lie on neighbouring nodes, so pp and dp groups take the fabric, tp and ep the link.
JOB: dict[str, Any] = {
    "model": "mixtral-8x7b",
    "nodes": 4,
    "parallel": "tp = 2 ep = 4 pp = 2 zero = 1 overlap = off",
}


def priced(book: Booked, figures: str) -> Ledger:
    return book(fabric=f"calibration {{ {figures} }}" if figures else "", **JOB)


def components(made: Ledger) -> dict[str, tuple[float, str]]:
    assert made.time is not None
    return {each.name: (each.seconds, each.source) for each in made.time.shares}


def messages(made: Ledger) -> dict[tuple[str, str, str], tuple[float, set[str]]]:
    found: dict[tuple[str, str, str], tuple[float, set[str]]] = {}
    for line, time in zip(made.communication, made.calls, strict=True):
        key = (line.link, line.group, line.collective)
        seconds, sources = found.get(key, (0.0, set()))
        found[key] = (seconds + time.seconds, sources | {time.source})
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_moves_its_own_lines(book: Booked, name: str) -> None:
    plain, measured = priced(book, ""), priced(book, FIGURES[name])
    parts, calls = MOVED[name]
    before, after = components(plain), components(measured)
    assert before.keys() == after.keys()
    # Ranks wait for the slowest in proportion to the step.
    moved = {each for each in before if before[each][0] != after[each][0]} - {"straggle"}
    assert moved == parts
    told = {each for each in after if "measured" in after[each][1]}
    assert told == parts
    sent, now = messages(plain), messages(measured)
    assert {key for key in sent if sent[key][0] != now[key][0]} == calls
    assert {key for key in now if now[key][1] == {"measured, the file"}} == calls
    assert not any("measured" in source for _, source in before.values())


@pytest.mark.parametrize("name", ["bf16", "copy", "link.all_to_all", "fabric.send"])
def test_twice_the_rate_is_half_the_time(book: Booked, name: str) -> None:
    figures = FIGURES[name].replace("3us", "0us")
    twice = figures.replace("500T", "1000T").replace("2TB", "4TB").replace("100GB", "200GB")
    slow, fast = components(priced(book, figures)), components(priced(book, twice))
    for part in MOVED[name][0]:
        assert fast[part][0] == pytest.approx(slow[part][0] / 2)


def call(made: Ledger, group: str, collective: str) -> tuple[float, float, int]:
    """Seconds a call, message bytes, ranks."""
    line, time = next(
        pair
        for pair in zip(made.communication, made.calls, strict=True)
        if (pair[0].group, pair[0].collective) == (group, collective)
    )
    return time.seconds / line.calls_per_step, line.bytes_per_call, line.ranks


def test_a_call_takes_what_was_measured(book: Booked) -> None:
    """By hand: steps of 3 us, and the bytes that one rank sends at 100 GB/s."""
    for name, group, collective, steps, part in (
        ("link.all_gather", "tp", "all_gather", lambda n: n - 1, lambda n: (n - 1) / n),
        ("link.all_to_all", "ep", "all_to_all", log2, lambda n: (n - 1) / n),
        ("fabric.send", "pp", "send", lambda n: 1, lambda n: 1),
    ):
        each, size, ranks = call(priced(book, FIGURES[name]), group, collective)
        wanted = steps(ranks) * 3e-6 + part(ranks) * size / 100e9
        assert each == pytest.approx(wanted, rel=2e-3), name


NO_LATENCY = "link { latency = 0us } nic { latency = 0us }"


@pytest.mark.parametrize("stack", ["parlay", "megatron-2025", "deepspeed"])
def test_what_was_predicted_and_then_measured_changes_nothing(book: Booked, stack: str) -> None:
    """A rate that was measured holds what a library loses: that is not taken off again."""
    job = JOB | {"train": f'stack = "{stack}"', "wires": NO_LATENCY}
    plain = book(**job)
    lost = efficiency.of(plain.spec).factors
    # Stated: 450 GB/s of NVLink, 50 GB/s of a network card for each GPU.
    tp, ep = (f"{450 / lost[name]:.9f}" for name in ("tp", "ep"))
    pp, dp = (f"{50 / lost[name]:.9f}" for name in ("pp", "dp"))
    link = f"all_gather {rate(tp)} reduce_scatter {rate(tp)} all_to_all {rate(ep)}"
    fabric = f"all_gather {rate(dp)} reduce_scatter {rate(dp)} send {rate(pp)}"
    words = f"link {{ ranks = 8 {link} }} fabric {{ ranks = 16 {fabric} }}"
    made = book(**job, fabric=f"calibration {{ {words} }}")
    assert plain.time is not None and made.time is not None
    for before, after in zip(plain.time.shares, made.time.shares, strict=True):
        assert after.seconds == pytest.approx(before.seconds, rel=1e-7), before.name
    known = {"tp", "ep", "pp", "dp"}
    assert known <= {share.name for share in made.time.shares if "measured" in share.source}
    for line, was, now in zip(plain.communication, plain.calls, made.calls, strict=True):
        assert now.seconds == pytest.approx(was.seconds, rel=1e-7), line
        assert now.exposed_seconds == pytest.approx(was.exposed_seconds, rel=1e-7), line


def rate(gigabytes: str) -> str:
    return f"{{ bandwidth = {gigabytes}GB/s latency = 0us }}"


def test_a_product_takes_what_was_measured(book: Booked) -> None:
    """The very product that was measured is priced at its measured time."""
    made = priced(book, FIGURES["bf16"])
    plain = priced(book, "")
    nominal = gemm.seconds(8192, 8192, 8192, Machine.of(made.spec, units=132))
    share = nominal / (2 * 8192**3 / 500e12)
    ratio = components(made)["gemm"][0] / components(plain)["gemm"][0]
    assert ratio == pytest.approx(efficiency.load()["family"]["h100"]["gemm"] / share, rel=1e-3)


@pytest.mark.parametrize(
    ("figures", "train"),
    [
        ("fp32 { rate = 50TFLOP/s size = 4096 }", ""),
        ("bf16 { rate = 500TFLOP/s size = 8192 }", "precision = fp32"),
    ],
)
def test_another_precision_s_product_moves_nothing(book: Booked, figures: str, train: str) -> None:
    plain = book(train=train)
    made = book(train=train, fabric=f"calibration {{ {figures} }}")
    assert plain.time is not None and made.time is not None
    assert plain.time == made.time and plain.time.told == made.time.told


def test_what_more_ranks_than_a_domain_measured_is_of_the_host(book: Booked) -> None:
    """Eight ranks on pairs of GPUs went through the host: the pairs' own wire is not told."""
    pairs = {
        "node": "a100-pcie-pairs",
        "model": "llama3.2-1b",
        "fabric": f"calibration {{ link {{ ranks = 8 all_reduce {CALL} }} }}",
    }
    inside = book(parallel="tp = 2 sequence_parallel = off", **pairs)
    across = book(parallel="tp = 4 sequence_parallel = off", **pairs)
    for made, said in ((inside, False), (across, True)):
        sources = {
            time.source
            for line, time in zip(made.communication, made.calls, strict=True)
            if line.group == "tp"
        }
        assert ("measured, the file" in sources) is said


def test_offloaded_states_move_over_the_measured_host(book: Booked) -> None:
    offload = "zero = 1 offload = cpu(optimizer)"
    plain = components(book(parallel=offload))["optimizer"]
    made = components(book(parallel=offload, fabric="calibration { host = 10GB/s }"))["optimizer"]
    assert made[1] == "measured, the file" and made[0] > 2 * plain[0]
    assert components(book(fabric="calibration { host = 10GB/s }")) == components(book())


def test_trees_and_rings_are_chosen_by_the_measured_latency(book: Booked) -> None:
    def algorithms(figures: str) -> set[str]:
        made = book(nodes=8, parallel="zero = 0", fabric=f"calibration {{ {figures} }}")
        return {
            line.algorithm
            for line in made.communication
            if line.collective == "all_reduce" and line.bytes_per_call > 1e6
        }

    call = "fabric {{ ranks = 16 all_reduce {{ bandwidth = 50GB/s latency = {} }} }}"
    assert algorithms(call.format("100ns")) == {"ring"}
    assert algorithms(call.format("10ms")) == {"tree"}


def test_a_machine_without_a_peak_is_priced_by_what_was_measured(book: Booked) -> None:
    laptop = {"node": "laptop", "model": "qwen3-0.6b", "train": "precision = fp32", "batch": 8}
    assert book(**laptop).time is None
    product = "fp32 { rate = 0.1TFLOP/s size = 1024 }"
    assert book(fabric=f"calibration {{ {product} }}", **laptop).time is None
    made = book(fabric=f"calibration {{ {product} copy = 10GB/s }}", **laptop).time
    assert made is not None and made.mfu is None
    work = made.flops_per_token * 8 * 4096 / 8
    assert 0.8 < made.step_seconds / (work / 0.1e12) < 2  # not as fast as if all were products
