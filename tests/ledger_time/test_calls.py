"""The messages of the ledger, priced one by one, against the step that is priced as a whole."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import pytest
from parlay.compiler.ledger.document import Ledger

Booked = Callable[..., Ledger]

STACK = 'stack = "megatron-2025"'


def seconds(book: Ledger, *groups: str, what: str = "") -> float:
    """Of all calls of a step over `groups` on the first stage."""
    return sum(
        time.seconds
        for line, time in zip(book.communication, book.calls, strict=True)
        if line.group in groups and 0 in line.stages and line.what.startswith(what)
    )


def exposed(book: Ledger, *groups: str) -> float:
    """What the step waits for over `groups`."""
    return sum(
        time.exposed_seconds
        for line, time in zip(book.communication, book.calls, strict=True)
        if line.group in groups and 0 in line.stages
    )


def share(book: Ledger, name: str) -> float:
    """Seconds of a component of the step."""
    assert book.time is not None
    return next((each.seconds for each in book.time.shares if each.name == name), 0.0)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_sums_over_tp_are_what_the_step_has(book: Booked, tp: int, recompute: str) -> None:
    made = book(
        parallel=f"tp = {tp} sequence_parallel = off zero = 1",
        train=f"{STACK} recompute = {recompute}",
    )
    assert seconds(made, "tp") == pytest.approx(share(made, "tp"), rel=0.01)


@pytest.mark.parametrize(
    ("stack", "recompute"), [("nemo-24", "none"), ("nemo-24", "full"), ("automodel", "none")]
)
def test_sums_of_adapters_are_what_the_step_has(book: Booked, stack: str, recompute: str) -> None:
    lora = f'lora = lora(rank = 16) stack = "{stack}" recompute = {recompute}'
    made = book(parallel="tp = 2 sequence_parallel = off zero = 1", train=lora)
    assert seconds(made, "tp") == pytest.approx(share(made, "tp"), rel=0.01)


def test_messages_of_both_copies_are_timed(book: Booked) -> None:
    """DualPipe: two ranks hold each stage, and sum what they have of its gradients."""
    made = book(parallel="pp = 4 schedule = dualpipe zero = 1")
    assert seconds(made, "mirror") > 0


@pytest.mark.parametrize("tp", [2, 4])
def test_gathers_of_the_input_run_beside_its_product(book: Booked, tp: int) -> None:
    """Under sequence parallelism the backward's second gather of each sublayer hides: 4 of 5."""
    made = book(parallel=f"tp = {tp} zero = 1", train=STACK)
    assert share(made, "tp") / seconds(made, "tp") == pytest.approx(4 / 5, abs=0.01)


@pytest.mark.parametrize(("nodes", "ep"), [(1, 4), (2, 8), (4, 16)])
def test_exchanges_are_what_the_step_has(book: Booked, nodes: int, ep: int) -> None:
    model = "qwen3-30b-a3b"
    # Without graphs a layer waits for its host, and exchanges for nothing of their own.
    train = 'stack = "megatron-2025-graphs"'
    made = book(model=model, nodes=nodes, parallel=f"ep = {ep} zero = 1", train=train)
    assert seconds(made, "ep") == pytest.approx(share(made, "ep"), rel=0.01)
    [dispatch, _] = [line for line in made.communication if line.group == "ep"]
    assert dispatch.calls_per_step == 48 * 2 * 64 // (8 * nodes)  # layers, passes, microbatches
    assert dispatch.bytes_per_call == 2 * 4096 * 8 * 2048  # bf16, tokens, experts a token, hidden


@pytest.mark.parametrize("parallel", ["zero = 0", "zero = 1", "zero = 3", "zero = 3 shard = 8"])
def test_gradients_and_weights_are_what_the_step_has(book: Booked, parallel: str) -> None:
    made = book(nodes=2, parallel=parallel, train=STACK)
    groups = ("dp", "shard", "replicate", "world")
    assert exposed(made, *groups) == pytest.approx(share(made, "dp"), rel=1e-6)
    assert exposed(made, *groups) < seconds(made, *groups)


def test_nothing_hides_without_overlap(book: Booked) -> None:
    made = book(nodes=2, parallel="zero = 1 overlap = off", train=STACK)
    assert exposed(made, "dp") == pytest.approx(seconds(made, "dp"), rel=0.05)


def test_a_small_sum_takes_the_shorter_of_ring_and_tree(book: Booked) -> None:
    """Eight bytes over 64 ranks of 8 nodes: 4·log2(64) messages of the card's latency."""
    made = book(nodes=8, parallel="zero = 1", train=STACK)
    line, time = next(
        pair
        for pair in zip(made.communication, made.calls, strict=True)
        if pair[0].what == "labels that count"
    )
    nic = made.spec.cluster and made.spec.cluster.node.nic
    assert nic is not None and line.algorithm == "tree"
    factor = float(time.formula.rpartition(" x ")[2])
    assert time.seconds == pytest.approx(factor * 4 * log2(64) * nic.latency_s, rel=0.01)


def test_what_is_received_is_waited_for_once(book: Booked) -> None:
    made = book(nodes=2, parallel="pp = 2 zero = 1", train=STACK)
    times = {
        line.collective: time
        for line, time in zip(made.communication, made.calls, strict=True)
        if line.group == "pp"
    }
    assert times["recv"].seconds == times["send"].seconds
    assert times["recv"].exposed_seconds == 0 < times["send"].exposed_seconds


# ── What first and last stage hold twice ──────────────────────────────────────


@pytest.mark.parametrize(
    ("parallel", "train", "sent"),
    [
        # 50,304 rows of 1,600 in fp32 over two ranks; cut by tp; in bf16.
        ("pp = 2", STACK, 50304 * 1600 * 4),
        ("pp = 2 tp = 5", STACK, 50560 * 1600 * 4 / 5),
        ("pp = 4", f"{STACK} gradients = bf16", 50304 * 1600 * 2),
    ],
)
def test_tied_gradients_are_summed_after_the_backward(
    book: Booked, parallel: str, train: str, sent: float
) -> None:
    more = {"model": "gpt2-xl", "node": "dgx-h100", "seq": 1024, "batch": 40, "nodes": 1}
    if "tp" in parallel:
        more |= {"wires": "gpus = 10 link { domain = 10 }"}
    made = book(parallel=f"{parallel} zero = 1 vocab_multiple = 64", train=train, **more)
    (line, time), *rest = [
        pair
        for pair in zip(made.communication, made.calls, strict=True)
        if pair[0].group == "embedding"
    ]
    assert not rest and line.bytes_per_call == sent
    assert made.time is not None
    dp = next(each for each in made.time.shares if each.name == "dp")
    # An all-reduce of two ranks sends the message once, in two steps of the link.
    assert line.ranks == 2
    assert time.seconds == pytest.approx(sent / 450e9 * dp.factor, rel=0.1)
    assert time.exposed_seconds == time.seconds
    last = made.spec.parallel.pp - 1  # the head makes it the busiest
    waited = sum(
        time.exposed_seconds
        for line, time in zip(made.communication, made.calls, strict=True)
        if last in line.stages and line.group not in ("tp", "pp")
    )
    assert share(made, "dp") == pytest.approx(waited)


def test_what_one_rank_holds_once_is_not_summed(book: Booked) -> None:
    alike = {"model": "gpt2-xl", "seq": 1024, "nodes": 1}
    both = book(parallel="pp = 8 schedule = zbv zero = 0", batch=16, **alike)
    assert share(both, "dp") == 0.0
    untied = book(parallel="pp = 8 zero = 0", batch=16, model="llama2-7b", nodes=1)
    assert share(untied, "dp") == 0.0
