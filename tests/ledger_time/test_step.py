"""The step as a whole: what it is made of, and how it answers to changes of the spec."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from parlay.compiler.ledger import flops
from parlay.compiler.ledger.document import Ledger
from parlay.compiler.ledger.time import TimeLine
from parlay.compiler.ledger.time.trace import trace

Timed = Callable[..., TimeLine]
Booked = Callable[..., Ledger]


def test_the_shares_are_the_step(timed: Timed) -> None:
    line = timed()
    assert sum(share.seconds for share in line.shares) == pytest.approx(line.step_seconds)
    exposed = line.exposed_communication_seconds
    assert line.compute_seconds + exposed == pytest.approx(line.step_seconds)
    assert line.tokens_per_second == pytest.approx(64 * 4096 / line.step_seconds)
    assert line.tokens_per_second_per_gpu == pytest.approx(line.tokens_per_second / 8)


def test_mfu_is_stated_work_over_the_peak(timed: Timed, job: Callable[..., Any]) -> None:
    line, (spec, _) = timed(), job()
    per_token = 6 * 6_607_077_376 + 12 * 32 * 4096 * 4096
    assert flops.per_token(spec) == pytest.approx(per_token, rel=1e-3)
    assert line.mfu == pytest.approx(
        line.flops_per_token * 64 * 4096 / line.step_seconds / 8 / 989.4e12
    )
    assert line.hfu == pytest.approx(line.mfu)
    assert "12 x layers" in line.flops_convention


@pytest.mark.parametrize("stack", ["parlay", "megatron-2025", "nemo-24"])
def test_a_7b_model_runs_at_a_plausible_share(timed: Timed, stack: str) -> None:
    assert 0.3 < (timed(train=f'stack = "{stack}"').mfu or 0) < 0.7


@pytest.mark.parametrize("node", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_full_recompute_costs_what_it_is_known_to(timed: Timed, node: str) -> None:
    stack = 'stack = "megatron-2025"'
    plain = timed(node=node, train=stack)
    again = timed(node=node, train=f"recompute = full {stack}")
    assert 1.25 < again.step_seconds / plain.step_seconds < 1.35
    assert again.hfu / again.mfu == pytest.approx(4 / 3, rel=0.05)


def test_an_early_stop_spares_the_last_product(timed: Timed) -> None:
    full = timed(train="recompute = full").step_seconds / timed().step_seconds
    assert 1.15 < full < 1.32


@pytest.mark.parametrize(("model", "low"), [("llama2-13b", 1.2), ("llama3-70b", 1.3)])
def test_fp8_gains_what_it_is_known_to(timed: Timed, model: str, low: float) -> None:
    degrees = "tp = 4 pp = 2 zero = 1" if model == "llama3-70b" else "tp = 2 zero = 1"
    common = {"model": model, "nodes": 4, "parallel": degrees, "batch": 256}
    wide = timed(train='stack = "nemo-24"', **common)
    narrow = timed(train='precision = fp8 stack = "nemo-24"', **common)
    assert low < wide.step_seconds / narrow.step_seconds < 1.7


def test_unfused_attention_is_slower(timed: Timed) -> None:
    assert timed(train="attention = math").step_seconds > 1.1 * timed().step_seconds


@pytest.mark.parametrize(("batch", "times"), [(64, 1.0), (128, 2.0), (256, 4.0)])
def test_a_step_grows_with_its_microbatches(timed: Timed, batch: int, times: float) -> None:
    assert timed(batch=batch).step_seconds / timed().step_seconds == pytest.approx(times, rel=0.05)


def test_the_bubble_of_even_stages_is_the_closed_form(timed: Timed) -> None:
    line = timed(parallel="pp = 8 zero = 1", batch=64)
    # The last stage has the head, so the others wait for it: the bubble is a little smaller.
    assert line.bubble_over_ideal == pytest.approx(7 / 64, rel=0.25)
    assert line.bubble == pytest.approx(line.bubble_over_ideal / (1 + line.bubble_over_ideal))


def test_fewer_cards_expose_more_gradients(timed: Timed) -> None:
    common = {"nodes": 16, "batch": 128, "parallel": "zero = 1", "train": 'stack = "megatron-2025"'}
    fast = timed(**common)
    slow = timed(wires="nic { count = 1 bandwidth = 100Gb/s }", **common)
    assert slow.exposed_communication_seconds > 2 * fast.exposed_communication_seconds


def test_zero_3_gathers_in_every_microbatch(book: Booked) -> None:
    def gathered(zero: int) -> float:
        lines = book(nodes=2, parallel=f"zero = {zero}", batch=64).communication
        return sum(line.wire_bytes_per_step for line in lines if line.collective == "all_gather")

    # Once after the step, or before the forward and the backward of each of 4 microbatches.
    assert gathered(3) == pytest.approx(2 * 4 * gathered(1), rel=1e-6)


def test_hsdp_keeps_gathers_inside_the_node(book: Booked) -> None:
    lines = book(nodes=4, parallel="zero = 3 shard = 8", batch=64).communication
    links = {(line.group, line.collective): line.link for line in lines}
    assert links["shard", "all_gather"] == "link"
    assert links["replicate", "all_reduce"] == "fabric"


@pytest.mark.parametrize("line", ["step_seconds", "mfu", "bubble", "tokens_per_second"])
def test_every_figure_has_a_formula(timed: Timed, line: str) -> None:
    assert timed(parallel="pp = 2 tp = 2 zero = 1").formulas[line]


def test_lora_leaves_out_the_weights_gradients(timed: Timed) -> None:
    full, frozen = timed(), timed(train="lora = lora(rank = 16)")
    # A third of the products less; adapters on every projection move much of that again.
    assert 1.0 < full.step_seconds / frozen.step_seconds < 1.4
    # Nor are they counted as work of the model: a share of the peak stays one.
    gone = 2 * 6_607_077_376
    assert frozen.flops_per_token == pytest.approx(full.flops_per_token - gone, rel=1e-3)
    assert "4 x" in frozen.flops_convention and "6 x" in full.flops_convention


@pytest.mark.parametrize(
    "schedule", ["gpipe", "one_f_one_b", "interleaved(chunks = 2)", "zero_bubble", "zbv"]
)
def test_a_trace_ends_when_the_step_does(job: Callable[..., Any], schedule: str) -> None:
    spec, layout = job(parallel=f"pp = 4 zero = 1 schedule = {schedule}", nodes=2, batch=64)
    made = trace(spec, layout)
    slices = [event for event in made["traceEvents"] if event["ph"] == "X"]
    last = max(event["ts"] + event["dur"] for event in slices) / 1e6
    assert last == pytest.approx(made["otherData"]["step_seconds"], rel=0.06)
    for rank in range(4):
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == rank)
        for (_, end), (start, _) in pairwise(mine):
            assert start >= end - 1e-2


@pytest.mark.parametrize(
    "schedule", ["one_f_one_b", "interleaved(chunks = 2)", "zbv", "dualpipe_v", "dualpipe"]
)
def test_a_trace_is_in_the_trace_event_format(job: Callable[..., Any], schedule: str) -> None:
    """What Perfetto reads of Chrome's format: metadata and complete events, in microseconds."""
    spec, layout = job(parallel=f"pp = 4 zero = 1 schedule = {schedule}", nodes=2, batch=64)
    made = trace(spec, layout, most=16)
    text = json.dumps(made, allow_nan=False)
    events = json.loads(text)["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    assert {event["tid"] for event in events if event["ph"] == "M"} == set(range(4))
    for event in events:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] == "thread_name" and event["args"]["name"]
        else:
            assert event["ts"] >= 0 and event["dur"] > 0
    shown = made["otherData"]["microbatches_shown"]
    forwards = [event for event in events if event.get("cat") == "forward"]
    chunks = 1 if schedule in ("one_f_one_b", "dualpipe") else 2
    assert len(forwards) == 4 * chunks * shown


def test_a_trace_may_show_part(job: Callable[..., Any]) -> None:
    spec, layout = job(parallel="pp = 4 zero = 1 schedule = interleaved(chunks = 2)", batch=64)
    made = trace(spec, layout, most=10)
    assert made["otherData"]["microbatches_shown"] == 8


@pytest.mark.parametrize(("precision", "peak"), [("bf16", 989.4e12), ("fp8", 1978.9e12)])
def test_the_peak_is_that_of_the_precision(timed: Timed, precision: str, peak: float) -> None:
    line = timed(train=f"precision = {precision}")
    assert line.peak_flops == pytest.approx(peak, rel=1e-3)
    work = line.flops_per_token * line.tokens_per_second_per_gpu
    assert line.mfu == pytest.approx(work / peak, rel=1e-3)


def test_a_causal_count_leaves_half_of_the_square(timed: Timed) -> None:
    line = timed()
    square = 12 * 32 * 4096 * 4096
    assert line.mfu is not None and line.mfu_causal is not None
    assert line.mfu_causal / line.mfu == pytest.approx(1 - square / 2 / line.flops_per_token)


def share(line: TimeLine, name: str) -> float:
    return next(each.seconds for each in line.shares if each.name == name)


@pytest.mark.parametrize(("zero", "ranks"), [(0, 1), (1, 8), (3, 8)])
def test_the_update_moves_thirty_bytes_a_parameter(timed: Timed, zero: int, ranks: int) -> None:
    """6.74e9 parameters of Llama 2 7B over 3.35 TB/s, at the table's 67.04 % for H100."""
    line = timed(parallel=f"zero = {zero}", train='stack = "none"')
    seconds = 30 * 6_738_415_616 / ranks / 3.35e12 / 0.6704
    factor = next(each.factor for each in line.shares if each.name == "optimizer") * 0.6704
    assert share(line, "optimizer") == pytest.approx(seconds * factor, rel=1e-3)


def test_offloaded_states_move_over_the_host(timed: Timed, job: Callable[..., Any]) -> None:
    spec, _ = job()
    rate = spec.cluster.node.host.bandwidth_bytes_per_s
    here, there = timed(), timed(parallel="zero = 1 offload = cpu(optimizer)")
    ratio = share(there, "optimizer") / share(here, "optimizer")
    assert ratio == pytest.approx(spec.cluster.node.gpu.bandwidth_bytes_per_s / rate)
