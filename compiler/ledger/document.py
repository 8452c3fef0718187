"""The ledger of one phase: everything that is accounted, as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from parlay.compiler.layout import Layout
from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.comm import CommLine, comm_lines
from parlay.compiler.ledger.communication import microbatches
from parlay.compiler.ledger.goodput import Goodput, goodput
from parlay.compiler.ledger.inference import Inference, inference
from parlay.compiler.ledger.memory import Memory, account
from parlay.compiler.ledger.memory.states import each_parameter, kept, shards_of
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.pipelining import Pipelining, pipelining
from parlay.compiler.ledger.time import CallTime, TimeLine, call_times, price, priceable, report
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.units import Quantity


@dataclass(frozen=True, slots=True)
class StateSummary:
    """The training state by the parameter.

    `on_rank_bytes_per_parameter` is what a rank keeps of each parameter it holds, after sharding
    and offload; `largest_params` how many so sharded fit the budget; `gpus_needed` how many budgets
    the whole state fills.
    """

    bytes_per_parameter: float
    total_bytes: int
    weights_total_bytes: int
    on_rank_bytes_per_parameter: float
    largest_params: int | None
    gpus_needed: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """The whole run; times are None where no step time is known."""

    steps: int | None
    tokens: int | None
    training_flops: float | None
    days: float | None
    gpu_hours: float | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """One phase, accounted; `time` is None without a shape, a recipe or a peak of the GPU.

    `calls` are the times of `communication`, line by line; empty where `time` is None.
    """

    name: str
    spec: Spec
    layout: Layout
    memory: Memory
    state: StateSummary
    communication: tuple[CommLine, ...]
    calls: tuple[CallTime, ...]
    pipeline: Pipelining | None
    time: TimeLine | None
    run: Run
    goodput: Goodput | None
    inference: Inference


def ledger(phase: Phase, layout: Layout, *, stated: Quantity | None = None) -> Ledger:
    """The ledger of a phase whose layout passed its checks; `stated` is a measured speed."""
    spec = phase.spec
    assert spec.model is not None
    memory = account(spec, layout)
    held = [each.held for each in memory.classes]
    lines = comm_lines(spec, layout, held)
    time, calls = _time(spec, layout, lines, held)
    if stated is not None:
        from parlay.compiler.ledger.stated import at_speed, calls_at_speed

        predicted, time = time, at_speed(spec, layout, time, stated)
        calls = calls_at_speed(calls, predicted, time)
    shape = None
    if spec.train is not None:
        shape = pipelining(spec.parallel, max(1, microbatches(spec)))
    return Ledger(
        name=phase.name,
        spec=spec,
        layout=layout,
        memory=memory,
        state=_state(spec, layout, memory.budget_bytes),
        communication=lines,
        calls=calls,
        pipeline=shape,
        time=time,
        run=_run(spec, time),
        goodput=goodput(spec, layout, step_s=time.step_seconds if time else None),
        inference=inference(spec.model),
    )


def _time(
    spec: Spec, layout: Layout, lines: tuple[CommLine, ...], held: Sequence[Parameters]
) -> tuple[TimeLine | None, tuple[CallTime, ...]]:
    if not layout.stages or not priceable(spec):
        return None, ()
    step = price(spec, layout, ranks=held)
    return report(spec, layout, step), call_times(spec, layout, step, lines)


def _state(spec: Spec, layout: Layout, budget: int) -> StateSummary:
    assert spec.model is not None
    each, number = each_parameter(spec), parameters.total(spec.model)
    whole = 10**9
    on_rank = sum(
        line.value_bytes for line in kept(spec, Parameters(whole), shards_of(layout)).lines
    )
    per_parameter = on_rank / whole
    total = round(number * each.total)
    shared = spec.parallel.tp * spec.parallel.pp
    return StateSummary(
        bytes_per_parameter=each.total,
        total_bytes=total,
        weights_total_bytes=round(number * each.weights),
        on_rank_bytes_per_parameter=per_parameter,
        largest_params=int(budget / per_parameter) * shared if per_parameter else None,
        gpus_needed=ceil(total / budget) if budget else None,
    )


def _run(spec: Spec, time: TimeLine | None) -> Run:
    """Steps from `steps`, or from the token budget; days, GPU-hours and cost from the step time."""
    train, cluster = spec.train, spec.cluster
    assert cluster is not None and spec.model is not None
    if train is None:
        return Run(None, None, None, None, None, None)
    each = train.global_batch * train.seq
    steps = train.steps if train.steps is not None else None
    if steps is None and train.tokens is not None:
        steps = ceil(train.tokens / each)
    tokens = train.tokens if train.tokens is not None else steps and steps * each
    flops = 6.0 * parameters.active(spec.model) * tokens if tokens else None
    if steps is None or time is None:
        return Run(steps, tokens, flops, None, None, None)
    seconds = steps * time.step_seconds
    hours = seconds / 3600 * cluster.gpus
    price = cluster.node.gpu.price_per_h
    cost = hours * price if price is not None else None
    return Run(steps, tokens, flops, seconds / 86400, hours, cost)
