"""What adapters and packed documents make of a layer's time; against the runtime, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from parlay.compiler.ledger.shared import adapters_of
from parlay.compiler.ledger.time import collectives, efficiency, gemm, stages, tuning
from parlay.compiler.ledger.time.layer import Layer, layer
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.ledger.time.step import price

Job = Callable[..., Any]
LORA = "lora = lora(rank = 16)"
HIDDEN, FFN, TOKENS = 4096, 11008, 4096
"""Llama 2 7B, one sequence."""


def both(job: Job, **changed: Any) -> tuple[Layer, Layer, Machine, Any]:
    """A layer as it is priced, the same without what tuning adds, and what prices them."""
    spec, layout = job(**changed)
    rates = efficiency.of(spec)
    machine = Machine.of(spec, units=rates.units, peak=rates.peak, factors=rates.factors)
    wires = stages.wires(layout, machine)
    plain = layer(spec, machine, wires, experts=False)
    return tuning.layer(rates, spec, machine, wires, experts=False), plain, machine, wires


def added(tuned: Layer, plain: Layer, component: str) -> tuple[float, float]:
    """Seconds of a component that a layer has more, forward and backward."""

    def total(one: dict[str, dict[str, float]]) -> float:
        return sum(parts.get(component, 0.0) for parts in one.values())

    forward = total(tuned.forward) - total(plain.forward)
    return forward, total(tuned.backward) - total(plain.backward)


@pytest.mark.slow
def test_products_are_those_of_the_runtime(job: Job) -> None:
    """FLOPs of the runtime's linears with adapters, less those of frozen ones, on meta tensors."""
    torch = pytest.importorskip("torch")
    from parlay.runtime.adapters import Adapted, freeze
    from parlay.runtime.plan import Section
    from torch.utils.flop_counter import FlopCounterMode

    def flops(make: Callable[[int, int], Any]) -> list[int]:
        counted = []
        for part in ("forward", "backward"):
            whole = 0
            for into, out in [(HIDDEN, HIDDEN)] * 4 + [(HIDDEN, FFN)] * 2 + [(FFN, HIDDEN)]:
                x = torch.empty(1, TOKENS, into, device="meta", requires_grad=True)
                with FlopCounterMode(display=False) as forward:
                    y = make(into, out)(x)
                with FlopCounterMode(display=False) as backward:
                    y.backward(torch.empty_like(y))
                whole += (forward if part == "forward" else backward).get_total_flops()
            counted.append(whole)
        return counted

    def adapted(into: int, out: int) -> Any:
        lora = Section({"rank": 16, "alpha": 16.0}, path="lora")
        with torch.device("meta"):
            one = Adapted(into, out, bias=False, lora=lora)
        freeze(one)
        for end in ("lora_a", "lora_b"):
            getattr(one, end).requires_grad_(True)
        return one

    def frozen(into: int, out: int) -> Any:
        with torch.device("meta"):
            return torch.nn.Linear(into, out, bias=False).requires_grad_(False)

    with patch.object(gemm, "seconds", lambda m, n, k, _, low=False: 2.0 * m * n * k):
        tuned, plain, _, _ = both(job, train=LORA)
    expected = [a - b for a, b in zip(flops(adapted), flops(frozen), strict=True)]
    assert added(tuned, plain, "gemm") == pytest.approx(expected, rel=1e-12)


def test_sums_move_what_they_read_and_write(job: Job) -> None:
    """Two tensors read and one written, of outputs forward and of inputs backward."""
    tuned, plain, machine, _ = both(job, train=LORA)
    outputs, inputs, features = 5 * HIDDEN + 2 * FFN, 6 * HIDDEN + FFN, 7 * 16
    forward = 2 * TOKENS * (3 * outputs + 2 * features)
    backward = 2 * TOKENS * (3 * inputs + 2 * features)
    seconds = [forward / machine.memory_rate, backward / machine.memory_rate]
    assert added(tuned, plain, "pointwise") == pytest.approx(seconds)


def test_narrow_products_are_bound_by_memory(job: Job) -> None:
    """No less than what they read and write at the stated rate, and far from what they compute."""
    tuned, plain, machine, _ = both(job, train=LORA)
    moved = 2 * TOKENS * (11 * HIDDEN + 3 * FFN)  # every input and output once
    forward, backward = added(tuned, plain, "gemm")
    assert moved < forward * machine.memory_rate < 2.5 * moved
    assert 2 * moved < backward * machine.memory_rate < 5 * moved


@pytest.mark.parametrize("cut", ["on", "off"])
def test_features_travel_beside_a_gathered_sequence(job: Job, cut: str) -> None:
    parallel = f"tp = 2 sequence_parallel = {cut}"
    tuned, plain, _, wires = both(job, parallel=parallel, train=LORA)
    forward, backward = added(tuned, plain, "tp")
    if cut == "off":
        assert (forward, backward) == (0.0, 0.0)
        return
    for seconds, name in ((forward, "all_gather"), (backward, "reduce_scatter")):
        sent = [collectives.seconds(name, wires.tp, 2 * TOKENS * 16 * n) for n in (3, 2)]
        assert seconds == pytest.approx(sum(sent))


@pytest.mark.parametrize("cut", ["on", "off"])
def test_parallel_adapters_gather_and_sum(job: Job, cut: str) -> None:
    """NeMo's ParallelLinearAdapter on fused linears, collective by collective."""
    parallel, train = f"tp = 2 sequence_parallel = {cut}", f'{LORA} stack = "nemo-24"'
    tuned, plain, _, wires = both(job, parallel=parallel, train=train)

    def of(name: str, features: int) -> float:
        return collectives.seconds(name, wires.tp, 2 * TOKENS * features)

    # Two column sides gather features, two row sides sum them and gather what they make.
    forward = 2 * of("all_gather", 16) + 2 * of("all_reduce", 16) + 2 * of("all_gather", HIDDEN)
    backward = 4 * of("all_reduce", 16)
    backward += 2 * of("all_gather" if cut == "on" else "all_reduce", HIDDEN)
    assert added(tuned, plain, "tp") == pytest.approx((forward, backward))


def test_adapters_of_queries_keys_and_values_alone(job: Job) -> None:
    """As NeMo's fine-tuning benchmarks have them: one narrow product of each side."""
    with patch.object(gemm, "seconds", lambda m, n, k, _, low=False: 2.0 * m * n * k):
        tuned, plain, _, _ = both(job, train=f'{LORA} stack = "nemo-24-lora"')
    flops = 2 * TOKENS * 16 * (HIDDEN + 3 * HIDDEN)
    assert added(tuned, plain, "gemm") == pytest.approx((flops, 2 * flops))


@pytest.mark.parametrize("stack", ["nemo-24-sft", "nemo-24-lora"])
def test_packed_documents_attend_to_themselves(job: Job, stack: str) -> None:
    """200 tokens of 4096, at the speed of kernels on so short sequences: half at 320 tokens."""
    tuned, plain, _, _ = both(job, train=f'{LORA} stack = "{stack}"')
    for there, less in (
        (tuned.forward, plain.forward),
        (tuned.backward, plain.backward),
    ):
        share = there["core_attention"]["attention"] / less["core_attention"]["attention"]
        assert share == pytest.approx((200 / 4096) * (1 + 320 / 200) / (1 + 320 / 4096))


def test_adapters_alone_are_summed_and_updated(job: Job) -> None:
    spec, layout = job(parallel="dp = 8 zero = 1", train=LORA)
    number = 32 * 16 * (8 * HIDDEN + 3 * (HIDDEN + FFN))
    assert adapters_of(spec) == number
    step = price(spec, layout)
    assert step.parts["optimizer"] == pytest.approx(30 * number / 8 / step.machine.memory_rate)
    sent = {each.collective: each.message * each.calls for each in step.transfers}
    assert sent == {"reduce_scatter": 4 * number, "all_gather": 2 * number}


def test_frozen_weights_are_gathered_and_not_summed(job: Job) -> None:
    spec, layout = job(parallel="dp = 8 zero = 3", train=LORA)
    sent = [(each.when, each.collective) for each in price(spec, layout).transfers]
    once = [("step", "reduce_scatter"), ("step", "all_gather")]
    assert sent == [*once, ("forward", "all_gather"), ("backward", "all_gather")]


@pytest.mark.parametrize("stack", ["parlay", "megatron-2025"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_nothing_feeds_the_first_adapters_back(job: Job, stack: str, recompute: str) -> None:
    """The first layer has a product less; Megatron's recompute asks for its input's gradient."""
    train = f'{LORA} stack = "{stack}" recompute = {recompute}'
    spec, layout = job(parallel="tp = 2", train=train)
    step = price(spec, layout)
    first = step.pipeline.blocks[2].backward
    if recompute == "full" and stack != "parlay":
        assert first == {}
        return
    spared = gemm.seconds(TOKENS, HIDDEN, 3 * HIDDEN / 2, step.machine)
    assert first["gemm"] == pytest.approx(-spared)
    assert first["tp"] < 0 and set(first) == {"gemm", "tp"}


def test_messages_of_parallel_adapters(book: Callable[..., Any]) -> None:
    """Of 32 layers and 16 microbatches; the first layer's column side has no gradient to sum."""
    parallel, train = "tp = 2 sequence_parallel = off", f'{LORA} stack = "nemo-24"'
    lines = book(parallel=parallel, train=train).communication
    sent = {
        (line.collective, line.bytes_per_call): line.calls_per_step
        for line in lines
        if line.what == "adapters"
    }
    narrow, wide, times = 2 * TOKENS * 16, 2 * TOKENS * HIDDEN, 32 * 16
    assert sent == {
        ("all_gather", narrow): 2 * times,
        ("all_reduce", narrow): 6 * times,
        ("all_gather", wide): 2 * times,
        ("all_reduce", wide): 2 * times - 16,
    }
    # Both sides are cut: no rank has a share of what another holds whole.
    assert not [line for line in lines if line.what == "gradients of whole weights"]


def test_formulas_say_what_adapters_are(timed: Callable[..., Any]) -> None:
    told = {share.name: share.formula for share in timed(train=LORA).shares}
    assert "adapters" in told["gemm"] and "adapters" in told["optimizer"]
    plain = {share.name: share.formula for share in timed().shares}
    assert not any("adapters" in words for words in plain.values())
    packed = timed(train='stack = "nemo-24-sft"').shares
    assert "200 tokens" in next(share.formula for share in packed if share.name == "attention")
