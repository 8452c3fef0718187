"""Gradients and parameters over the data-parallel ranks: nominal seconds of one step.

ZeRO-0 sums gradients by all-reduce, ZeRO-1 by reduce-scatter with a gather of the new parameters,
ZeRO-2 scatters each microbatch, ZeRO-3 gathers parameters twice and scatters gradients once for
each microbatch (arXiv:1910.02054, section 7). Under `shard` the rest of the ranks add an all-reduce
of their shard (HSDP). DualPipe sums what a rank owns over the two that hold the same stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.time import collectives, shapes
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.spec.blocks import Parallel, Train

WIDTHS: Final = {"fp32": 4.0, "bf16": 2.0}


@dataclass(frozen=True, slots=True)
class Transfer:
    """Calls of one collective in a step, one message each; `when` it can hide.

    `when` is `forward` or `backward` for what each microbatch brings, `step` for what comes once.
    """

    group: str
    collective: str
    dtype: str
    message: float
    calls: int
    each: float
    when: str
    link: str

    @property
    def seconds(self) -> float:
        """Of all calls."""
        return self.calls * self.each


def transfers(
    parallel: Parallel,
    train: Train,
    layout: Layout,
    machine: Machine,
    held: Parameters,
    microbatches: int,
    *,
    bucket: float,
    broadcast: bool = False,
) -> Iterator[Transfer]:
    """Every transfer of a rank that trains what it holds, `held`.

    Messages are `bucket` parameters long, or a million for each rank where that is more
    (Megatron's rule); under ZeRO-3 a layer's. With `broadcast` every rank of ZeRO-1 sends its own
    share of the new parameters in a call of its own.
    """
    gradient = WIDTHS[train.gradients]
    for number, whole, shard, replicate in (
        (held.dense, "dp_cp", "shard", "replicate"),
        (held.expert, "edp", "expert_shard", "expert_replicate"),
    ):
        if not number:
            continue
        inner = shard if shard in layout.kinds else whole
        size = layout.size(whole) if whole in layout.kinds else 1
        bytes_gradient, bytes_weight = number * gradient, number * shapes.element(train)

        one = partial(_transfer, layout, machine, number, bucket)
        if parallel.pp > 1 and parallel.schedule.name == "dualpipe":
            # The ranks that hold the same stages; both ends of a pipeline are the farthest apart.
            own = bytes_gradient / (layout.size(inner) if parallel.zero and size > 1 else 1)
            both = one("embedding", "all_reduce", train.gradients, own, 1, "step")
            yield replace(both, group="mirror")
        if size == 1:
            continue
        parts = layout.size(inner)
        times = microbatches if parallel.zero >= 2 else 1
        moment = "backward" if parallel.zero >= 2 else "step"
        if parallel.zero == 0:
            yield one(whole, "all_reduce", train.gradients, bytes_gradient, 1, "step")
            continue
        if parts > 1:
            yield one(inner, "reduce_scatter", train.gradients, bytes_gradient, times, moment)
            if parallel.zero == 3:
                yield one(inner, "all_gather", "bf16", bytes_weight, times, "forward")
                yield one(inner, "all_gather", "bf16", bytes_weight, times, "backward")
            else:
                name = "broadcast" if broadcast else "all_gather"
                yield one(inner, name, "bf16", bytes_weight, 1, "step")
        if replicate in layout.kinds and layout.size(replicate) > 1:
            part = bytes_gradient / parts
            yield one(replicate, "all_reduce", train.gradients, part, 1, "step")


def of_frozen(
    held: Parameters,
    parallel: Parallel,
    train: Train,
    layout: Layout,
    machine: Machine,
    trained: Parameters,
    microbatches: int,
    *,
    bucket: float,
    broadcast: bool = False,
) -> Iterator[Transfer]:
    """`transfers` of a rank that trains adapters on what it holds: their gradients once a step,
    from ZeRO-2 on too, and under ZeRO-3 gathers of what is frozen, which has no gradients."""
    once = replace(parallel, zero=min(parallel.zero, 1))
    yield from transfers(
        *(once, train, layout, machine, trained, microbatches), bucket=bucket, broadcast=broadcast
    )
    if parallel.zero == 3:
        every = (parallel, train, layout, machine, held, microbatches)
        for each in transfers(*every, bucket=bucket):
            if each.collective == "all_gather":
                yield each


def _transfer(
    layout: Layout,
    machine: Machine,
    number: int,
    bucket: float,
    group: str,
    name: str,
    dtype: str,
    whole: float,
    times: int,
    when: str,
) -> Transfer:
    wire = machine.wire(layout, group)
    calls = max(1, round(number / max(bucket, 1e6 * wire.size)))
    if name == "broadcast":
        calls = wire.size
    each = collectives.seconds(name, wire, whole / calls)
    return Transfer(group, name, dtype, whole / calls, calls * times, each, when, wire.link)


def exposed(
    found: list[Transfer], *, share: float, forward: float, backward: float, microbatches: int
) -> float:
    """Seconds of a step that wait for these transfers.

    The share of traffic that runs beside computation waits only for what exceeds it: each
    microbatch's for its own forward or backward, what comes once for the first forward and the
    last backward. The rest waits in full.
    """
    sums = {"forward": 0.0, "backward": 0.0, "step": 0.0}
    for transfer in found:
        sums[transfer.when] += transfer.seconds
    room = {
        "forward": forward * microbatches,
        "backward": backward * microbatches,
        "step": 0.5 * (forward + backward),
    }
    return sum(
        (1 - share) * seconds + share * max(0.0, seconds - room[when])
        for when, seconds in sums.items()
    )
