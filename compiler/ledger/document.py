"""The ledger of one phase: everything that is accounted, as one record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

from parlay.compiler.layout import Layout
from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.comm import CommLine, comm_lines
from parlay.compiler.ledger.goodput import Goodput, goodput
from parlay.compiler.ledger.inference import Inference, inference
from parlay.compiler.ledger.memory import Memory, account
from parlay.compiler.ledger.memory.states import each_parameter, kept, shards_of
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.pipelining import Pipelining, pipelining
from parlay.compiler.ledger.recipe import microbatches
from parlay.compiler.ledger.shared import adapters_of
from parlay.compiler.ledger.state import bytes_per_adapter
from parlay.compiler.ledger.time import (
    CallTime,
    Step,
    TimeLine,
    call_times,
    price,
    priceable,
    report,
)
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.units import Quantity


@dataclass(frozen=True, slots=True)
class StateSummary:
    """The training state by the parameter.

    `on_rank_bytes_per_parameter` is what a rank keeps of each parameter it holds, after sharding
    and offload; `largest_params` how many so sharded fit the budget; `gpus_needed` how many budgets
    the whole state fills. Under adapters it is that of the frozen weights, and `total_bytes` has
    the adapters' besides.
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


@dataclass(frozen=True)
class Ledger:
    """One phase, accounted: the numbers that layouts are compared by, and the rest once it is
    asked for.

    `time` is None without a shape, a recipe or a peak of the GPU, `step` is what it was priced
    from.
    """

    name: str
    spec: Spec
    layout: Layout
    memory: Memory
    communication: tuple[CommLine, ...]
    time: TimeLine | None
    step: Step | None

    @cached_property
    def calls(self) -> tuple[CallTime, ...]:
        """The times of `communication`, line by line; empty where no step was priced."""
        if self.step is None or self.time is None:
            return ()
        calls = call_times(self.spec, self.layout, self.step, self.communication)
        times = self.time.step_seconds / self.step.seconds
        return calls if times == 1 else tuple(each.stretched(times) for each in calls)

    @cached_property
    def state(self) -> StateSummary:
        """The training state by the parameter."""
        return _state(self.spec, self.layout, self.memory.budget_bytes)

    @cached_property
    def pipeline(self) -> Pipelining | None:
        """The shape of the schedule; None without a recipe."""
        if self.spec.train is None:
            return None
        return pipelining(self.spec.parallel, max(1, microbatches(self.spec)))

    @cached_property
    def run(self) -> Run:
        """The whole run."""
        return _run(self.spec, self.time)

    @cached_property
    def goodput(self) -> Goodput | None:
        """What failures cost; None where the cluster says nothing of them."""
        seconds = self.time.step_seconds if self.time else None
        return goodput(self.spec, self.layout, step_s=seconds)

    @cached_property
    def inference(self) -> Inference:
        """What the trained model needs to be used."""
        assert self.spec.model is not None
        return inference(self.spec.model)


def ledger(phase: Phase, layout: Layout, *, stated: Quantity | None = None) -> Ledger:
    """The ledger of a phase whose layout passed its checks; `stated` is a measured speed."""
    spec = phase.spec
    memory = account(spec, layout)
    held = [each.held for each in memory.classes]
    lines = comm_lines(spec, layout, held)
    step = price(spec, layout, ranks=held) if layout.stages and priceable(spec) else None
    time = report(spec, layout, step) if step is not None else None
    if stated is not None:
        from parlay.compiler.ledger.stated import at_speed

        time = at_speed(spec, layout, time, stated)
    return Ledger(phase.name, spec, layout, memory, lines, time, step)


def _state(spec: Spec, layout: Layout, budget: int) -> StateSummary:
    assert spec.model is not None
    each, number = each_parameter(spec), parameters.total(spec.model)
    whole = 10**9
    on_rank = sum(
        line.value_bytes for line in kept(spec, Parameters(whole), shards_of(layout), each).lines
    )
    per_parameter = on_rank / whole
    total = round(number * each.total)
    if spec.train is not None and (low := adapters_of(spec)) is not None:
        total += round(low * bytes_per_adapter(spec.train).total)
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
    each_weight = 6.0 if train.lora is None else 4.0
    flops = each_weight * parameters.active(spec.model) * tokens if tokens else None
    if steps is None or time is None:
        return Run(steps, tokens, flops, None, None, None)
    seconds = steps * time.step_seconds
    hours = seconds / 3600 * cluster.gpus
    price = cluster.node.gpu.price_per_h
    cost = hours * price if price is not None else None
    return Run(steps, tokens, flops, seconds / 86400, hours, cost)
