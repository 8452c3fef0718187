"""A priced step as the lines of the ledger, each with its formula."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from parlay.compiler.layout import Layout
from parlay.compiler.ledger import flops
from parlay.compiler.ledger.time import tuning
from parlay.compiler.ledger.time.calls import source_of
from parlay.compiler.ledger.time.efficiency import COMMUNICATION, band
from parlay.compiler.ledger.time.lines import Share, TimeLine, Told
from parlay.compiler.ledger.time.step import Step, price
from parlay.compiler.spec.blocks import Spec

WORDS: Mapping[str, str] = {
    "gemm": "2·m·n·k of every product / dense peak, times what tiles, waves and depth lose",
    "gemm_low": "the same over the fp8 or fp4 peak",
    "expert": "2·m·n·k of the routed experts' products / dense peak, rows = tokens·ep·k/E",
    "expert_low": "the same over the fp8 or fp4 peak",
    "attention": "4·tokens·seq·width/2 forward and 2.5 times that backward / dense peak",
    "unfused": "4·tokens·seq·width / peak, and 11 bytes a score / memory bandwidth",
    "pointwise": "bytes of norms, residuals, positions and activations / memory bandwidth",
    "quantise": "4 bytes an element cast / memory bandwidth",
    "permute": "tokens·k·hidden·4 bytes a pass / memory bandwidth",
    "loss": "20 bytes a logit / memory bandwidth",
    "accumulate": "8 bytes a weight and microbatch (2 under ZeRO-2 and 3) / memory bandwidth",
    "launch": "3 us a kernel",
    "host": "layers whose kernels take longer to start, 12 us each, than to run",
    "optimizer": "30 bytes a parameter of the rank's share / memory bandwidth",
    "tp": "messages·alpha + wire bytes / link",
    "cp": "what the ring takes beyond the attention beside it",
    "ep": "two exchanges forward and two backward a layer / link or fabric",
    "pp": "an activation and a gradient a chunk and microbatch / link or fabric",
    "dp": "what gradients and parameters take beyond the computation beside them; tied gradients",
    "straggle": "1 % of the step for each doubling beyond eight ranks",
}


def time_of(spec: Spec, layout: Layout, table: Mapping[str, Any] | None = None) -> TimeLine:
    """The time of one step of a spec whose layout passed its checks; `table` prices it."""
    return report(spec, layout, price(spec, layout, table), table)


def report(
    spec: Spec, layout: Layout, step: Step, table: Mapping[str, Any] | None = None
) -> TimeLine:
    """A priced step of `spec` in lines."""
    train, cluster, model = spec.train, spec.cluster, spec.model
    assert train is not None and cluster is not None and model is not None
    seconds = step.seconds
    exposed = exposed_seconds(step)
    tokens = train.global_batch * train.seq
    per_token = flops.per_token(spec)
    causal = flops.per_token(spec, causal=True) / per_token
    again = again_per_token(spec, step)
    peak = flops.peak(cluster.node.gpu, train.precision)
    achieved = per_token * tokens / seconds / cluster.gpus
    waits = step.waits
    return TimeLine(
        step_seconds=seconds,
        compute_seconds=seconds - exposed,
        exposed_communication_seconds=exposed,
        bubble=waits / (waits + step.ideal),
        bubble_over_ideal=waits / step.ideal,
        tokens_per_second=tokens / seconds,
        tokens_per_second_per_gpu=tokens / seconds / cluster.gpus,
        mfu=achieved / peak if peak else None,
        hfu=achieved * (1 + again / per_token) / peak if peak else None,
        mfu_causal=causal * achieved / peak if peak else None,
        peak_flops=peak,
        flops_per_token=per_token,
        flops_convention=flops.convention(spec),
        band=band(spec, table),
        tell=partial(told, spec, layout, step),
    )


def told(spec: Spec, layout: Layout, step: Step) -> Told:
    """The components of a priced step, and the formulas of its figures."""
    train, cluster = spec.train, spec.cluster
    assert train is not None and cluster is not None
    factors, seconds, waits = step.efficiency.factors, step.seconds, step.waits
    exposed = exposed_seconds(step)
    tokens = train.global_batch * train.seq
    per_token = flops.per_token(spec)
    causal = flops.per_token(spec, causal=True) / per_token
    peak = flops.peak(cluster.node.gpu, train.precision)
    again = again_per_token(spec, step)
    besides = tuning.words(spec, step.efficiency)
    shares = tuple(
        Share(
            *(name, part * factors[name], factors[name], WORDS[name] + besides.get(name, "")),
            source_of(name, step, spec, layout),
        )
        for name, part in step.parts.items()
        if part
    )
    p, m = spec.parallel.pp, step.microbatches
    formulas = {
        "step_seconds": " + ".join(f"{s.name} {s.seconds:.4g} s" for s in shares),
        "compute_seconds": f"{seconds:.4g} s − exposed {exposed:.4g} s",
        "exposed_communication_seconds": " + ".join(
            f"{s.name} {s.seconds:.4g} s" for s in shares if s.name in COMMUNICATION
        )
        or "no group has more than one rank",
        "bubble": f"waits {waits:.4g} s / (waits + busy {step.ideal:.4g} s); {p} ranks, "
        f"{m} microbatches, {spec.parallel.schedule.name}",
        "bubble_over_ideal": f"waits {waits:.4g} s / busy {step.ideal:.4g} s",
        "tokens_per_second": f"{train.global_batch}·{train.seq} / {seconds:.4g} s",
        "tokens_per_second_per_gpu": f"{tokens} / {seconds:.4g} s / {cluster.gpus}",
        "mfu": f"{per_token:.4g} FLOPs · {tokens} / {seconds:.4g} s / {cluster.gpus} / {peak}"
        if peak
        else "no peak is known",
        "mfu_causal": f"mfu · {causal:.4g}",
        "hfu": f"mfu · (1 + {again:.4g} / {per_token:.4g})",
    }
    return Told(shares, formulas)


def exposed_seconds(step: Step) -> float:
    """What a step waits for communication."""
    parts, factors = step.parts, step.efficiency.factors
    return sum([parts.get(name, 0.0) * factors[name] for name in COMMUNICATION])


def again_per_token(spec: Spec, step: Step) -> float:
    """FLOPs a token that recompute adds, over the whole model."""
    train, parallel = spec.train, spec.parallel
    assert train is not None
    on_rank = sum(
        block.again_flops * sum(row[kind] for row in step.pipeline.counts)
        for kind, block in enumerate(step.pipeline.blocks)
        if block.again_flops
    )
    tokens = train.micro_batch * train.seq / parallel.cp
    return on_rank * parallel.tp / tokens
