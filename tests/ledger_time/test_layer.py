"""What a layer's time is made of: halves of a backward, latents over tp; by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from parlay.compiler.ledger.time import bubble, collectives, efficiency, gemm, stages
from parlay.compiler.ledger.time.layer import Layer, layer
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.ledger.time.step import price
from parlay.compiler.ledger.time.trace import trace
from parlay.compiler.spec.schema import Setting
from parlay.runtime import timeline_split

Job = Callable[..., Any]


def made(job: Job, *, experts: bool = False, **changed: Any) -> tuple[Layer, Machine, Any]:
    """A layer of a job, with what it is priced by."""
    spec, layout = job(**changed)
    rates = efficiency.of(spec)
    machine = Machine.of(spec, units=rates.units, peak=rates.peak, factors=rates.factors)
    wires = stages.wires(layout, machine)
    return layer(spec, machine, wires, experts=experts), machine, wires


@pytest.mark.parametrize(
    ("changed", "tokens", "cut"),
    [({}, 4096, 1), ({"seq": 1024}, 1024, 1), ({"parallel": "tp = 2"}, 4096, 2)],
)
def test_the_second_half_is_a_product_for_each_weight(
    job: Job, changed: dict[str, Any], tokens: int, cut: int
) -> None:
    """Llama 2 7B: 4096 wide, 11008 in the MLP; gradients are added in fp32, 8 bytes a weight."""
    one, machine, _ = made(job, **changed)
    shapes = [(3 * 4096 // cut, 4096), (4096, 4096 // cut)]
    shapes += [(2 * 11008 // cut, 4096), (4096, 11008 // cut)]
    products = sum(gemm.seconds(n, k, tokens, machine) for n, k in shapes)
    assert one.weights["gemm"] == pytest.approx(products)
    weights = (4 * 4096 * 4096 + 3 * 4096 * 11008) / cut
    assert one.weights["accumulate"] == pytest.approx(8 * weights / machine.memory_rate)
    assert set(one.weights) == {"gemm", "accumulate"}


def test_frozen_weights_have_no_second_half(job: Job) -> None:
    assert not any(made(job, train="lora = lora(rank = 16)")[0].weights.values())


@pytest.mark.parametrize(("stack", "late"), [("parlay", False), ("megatron-2025", True)])
def test_routed_experts_are_not_put_off_in_the_emitted_code(
    job: Job, stack: str, late: bool
) -> None:
    one, _, _ = made(
        job,
        experts=True,
        model="mixtral-8x7b",
        parallel="ep = 8",
        train=f'stack = "{stack}"',
    )
    assert bool(one.weights["expert"]) == late
    assert one.weights["gemm"] > 0


MLA = {
    "deepseek-v3": (1536 + 512 + 64, False),
    "deepseek-v2-lite": (512 + 64, True),
}


@pytest.mark.parametrize("model", MLA)
@pytest.mark.parametrize("sequence", [True, False])
def test_latents_travel_in_place_of_the_stream(job: Job, model: str, sequence: bool) -> None:
    off = "" if sequence else "sequence_parallel = off"
    parallel = f"tp = 8  ep = 8  {off}"
    one, _, wires = made(job, experts=True, model=model, nodes=1, parallel=parallel)
    latent, stream = MLA[model]
    hidden = {"deepseek-v3": 7168, "deepseek-v2-lite": 2048}[model]

    def seconds(name: str, features: int) -> float:
        return collectives.seconds(name, wires.tp, 2 * 4096 * features)

    forward, backward = one.forward["attention"]["tp"], one.backward["attention"]["tp"]
    if sequence:
        gathered, scattered = seconds("all_gather", hidden), seconds("reduce_scatter", hidden)
        ways = seconds("all_gather", latent), seconds("reduce_scatter", latent)
        assert forward == pytest.approx(ways[0] + scattered + stream * gathered)
        assert backward == pytest.approx(gathered + ways[1] + stream * scattered)
    else:
        whole = seconds("all_reduce", hidden)
        assert forward == pytest.approx(whole)
        assert backward == pytest.approx(seconds("all_reduce", latent) + stream * whole)


# ── Halves in a pipeline ──────────────────────────────────────────────────────

SPLITS = (
    *((1, 1, 1), (1, 1.5, 0.8), (1, 2, 0.5), (1, 1, 0.5), (1, 3, 1), (1, 2, 2)),
    *((1, 1, 1.5), (1, 2, 3), (2, 3, 1), (2, 1, 1), (1, 0.8, 1)),
)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ["zero_bubble", "zbv"])
@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 16), (8, 32)])
def test_halves_of_any_length(name: str, split: tuple[float, ...], p: int, m: int) -> None:
    """The closed form against the action list that the runtime executes."""
    line = getattr(timeline_split, name)(p, m)
    part = {kind: each / line.chunks for kind, each in zip("FIW", split, strict=True)}
    part["B"] = part["I"] + part["W"]
    played = line.play(lambda action: part[action.kind])
    times = [float(sum(split))] * p
    found, _ = bubble.step(Setting(name), times, m, bubble.Split(*split))
    assert found == pytest.approx(max(ends[-1] for ends in played))
    assert bubble.waiting_share(Setting(name), p) <= bubble.waiting_share(
        Setting(name), p, bubble.Split(*split)
    )


def test_a_split_step_waits_by_its_own_halves(job: Job) -> None:
    """Long sequences have more attention, which has no weights: the less can be put off."""
    shares = []
    for seq in (2048, 8192, 32768):
        spec, layout = job(seq=seq, nodes=2, parallel="pp = 4 zero = 1 schedule = zero_bubble")
        step = price(spec, layout)
        f, i, w = step.pipeline.split(step.pipeline.counts[step.busiest])
        assert sum((f, i, w)) == pytest.approx(
            sum(step.pipeline.seconds(step.pipeline.counts[step.busiest]))
        )
        shares.append(w / (f + i + w))
        made = trace(spec, layout, most=8)
        kinds = {"input gradient": i, "weight gradient": w}
        for event in made["traceEvents"]:
            if event.get("tid") == step.busiest and event.get("cat") in kinds:
                assert event["dur"] / 1e6 == pytest.approx(kinds[event["cat"]], rel=1e-3)
    assert 0.33 > shares[0] > shares[1] > shares[2] > 0.05


@pytest.mark.parametrize(
    ("stack", "forward"),
    [
        ("megatron-2025", 2.7e-3),
        ("megatron-2025-graphs", 0.4 * 2.7e-3),
        ("megatron-2025-sequential", 2.7e-3 + 16 * 8 * 12e-6),
    ],
)
def test_small_experts_wait_for_their_host(job: Job, stack: str, forward: float) -> None:
    """Qwen3-30B of 128 experts over eight ranks, 64 tokens: 25 kernels ahead of those of the
    router, twice as many in the backward, 12 us each."""
    spec, layout = job(
        model="qwen3-30b-a3b",
        parallel="ep = 8",
        seq=64,
        train=f'stack = "{stack}", attention = flash',
    )
    mixed = price(spec, layout).pipeline.blocks[1]
    assert mixed.forward == {"host": pytest.approx(forward + 25 * 12e-6)}
    assert mixed.backward == {"host": pytest.approx(2 * (forward + 25 * 12e-6))}
    assert mixed.seconds_forward == mixed.forward["host"]


def test_large_experts_do_not(job: Job) -> None:
    spec, layout = job(model="mixtral-8x7b", parallel="ep = 8", train='stack = "megatron-2025"')
    assert "host" not in price(spec, layout).parts


@pytest.mark.parametrize(
    ("stack", "once"),
    [("megatron-2025", False), ("megatron-2025-deepep", True), ("bridge-26.04-graphs", True)],
)
def test_a_token_goes_once_to_a_domain_by_a_word_of_the_stack(
    job: Job, stack: str, once: bool
) -> None:
    assert efficiency.of(job(train=f'stack = "{stack}"')[0]).dispatch_once is once
