"""Weights, gradients, master copy and moments of one rank, and what leaves for the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.adapters import rank_of
from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.ledger.memory.stack import Stack, stack_of
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.shared import trained_parameters
from parlay.compiler.ledger.state import State, bytes_per_adapter, bytes_per_parameter
from parlay.compiler.spec.blocks import Spec, Train

LORA: Final = "arXiv:2106.09685"
ZERO: Final = "arXiv:1910.02054, sections 3.1 and 5"


@dataclass(frozen=True, slots=True)
class Shards:
    """How many ranks share one copy of the dense and of the routed experts' state."""

    dense: int
    expert: int


@dataclass(frozen=True, slots=True)
class Kept:
    """The training state of one rank: lines on the GPU, and bytes on host and disk."""

    lines: tuple[Line, ...]
    host_bytes: int
    disk_bytes: int


def shards_of(layout: Layout) -> Shards:
    """The ZeRO groups of a layout: `shard` of dp·cp, and its part of edp."""
    expert = next(
        (layout.size(kind) for kind in ("expert_shard", "edp") if kind in layout.kinds), 1
    )
    return Shards(layout.size("shard"), expert)


def each_parameter(spec: Spec) -> State:
    """Bytes a parameter before any sharding, by the stack's convention.

    A stack whose fp32 weights are the only copy has no 16-bit weights besides, where parameters are
    sharded (`zero = 3`).
    """
    each = bytes_per_parameter(spec.train)
    stack = stack_of(spec.train.stack if spec.train else "parlay")
    if stack.master_is_weights and spec.parallel.zero == 3 and each.master:
        return State(each.master, each.gradients, 0, each.optimizer)
    return each


def kept(spec: Spec, held: Parameters, shards: Shards, each: State | None = None) -> Kept:
    """The state of a rank that holds `held`; `each` is that of `each_parameter`, where it is known.

    ZeRO 1 shards master and moments, 2 gradients too, 3 weights too.

    What `offload` names is on the host (`cpu`) or on disk (`nvme`), master and moments together.
    From stage 2 on the gradients that a rank keeps go where its optimizer is: DeepSpeed allocates
    them there, and so do its estimates of memory.
    """
    parallel, each = spec.parallel, each_parameter(spec) if each is None else each
    zero, offload = parallel.zero, parallel.offload
    away = offload.flags if offload is not None and offload.name != "none" else ()
    parts = (
        ("weights", "weights", each.weights, 3, "params"),
        ("gradients", "gradients", each.gradients, 2, "optimizer" if zero >= 2 else ""),
        ("optimizer", "master weights", each.master, 1, "optimizer"),
        ("optimizer", "optimizer moments", each.optimizer, 1, "optimizer"),
    )
    kinds = [("", held.dense, shards.dense)] if held.dense else []
    if held.expert:
        kinds.append((" of experts", held.expert, shards.expert))
    lines: list[Line] = []
    gone = 0
    for category, name, width, stage, word in parts:
        if not width:
            continue
        for kind, number, ranks in kinds:
            cut = ranks if zero >= stage else 1
            value = round(number * width / cut)
            if word in away:
                gone += value
                continue
            formula = f"{width:g} x {number}" + (f" / {cut}" if cut > 1 else "")
            lines.append(Line(category, name + kind, value, formula, ZERO))
    on_disk = bool(away) and offload.name == "nvme"
    return Kept(tuple(lines), 0 if on_disk else gone, gone if on_disk else 0)


def _by_chunks(train: Train) -> bool:
    """Whether our own code updates a chunk at a time, which it does where torch's AdamW, whose
    moments are those of the masters, is not what is asked for."""
    asked = train.optimizer
    return asked.name == "sgd" or asked["states"] != "fp32" or bool(asked["kahan"])


def adapter_lines(spec: Spec, chunks: Sequence[Stage], shards: Shards) -> Iterator[Line]:
    """The state of adapters on frozen weights; ZeRO shards their masters and moments."""
    if spec.train is None or rank_of(spec) is None:
        return
    each = bytes_per_adapter(spec.train)
    number, ranks = trained_parameters(spec, chunks).dense, shards.dense
    for category, name, width, cut in (
        ("weights", "adapters", each.weights, 1),
        ("gradients", "gradients of adapters", each.gradients, 1),
        ("optimizer", "master weights of adapters", each.master, ranks),
        ("optimizer", "optimizer moments of adapters", each.optimizer, ranks),
    ):
        cut = cut if spec.parallel.zero else 1
        formula = f"{width:g} x {number}" + (f" / {cut}" if cut > 1 else "")
        yield Line(category, name, round(number * width / cut), formula, LORA)


def update_lines(spec: Spec, held: Parameters, shards: Shards, stack: Stack) -> Iterator[Line]:
    """What the optimizer step needs besides: gradients in the master's dtype, if they are not yet.

    4 bytes for each parameter that the rank updates, where gradients are summed in 16 bits.
    """
    train, zero = spec.train, spec.parallel.zero
    if train is None or train.lora is not None or train.gradients != "bf16":
        return
    if train.stack == "parlay" and _by_chunks(train):
        return
    if train.master != "fp32" and train.precision != "fp32":
        return
    if spec.parallel.offload.name != "none":
        return
    for number, ranks in ((held.dense, shards.dense), (held.expert, shards.expert)):
        cut = ranks if zero >= 1 else 1
        if number:
            formula = f"4 x {number}" + (f" / {cut}" if cut > 1 else "")
            value = round(4 * number / cut)
            yield Line(
                "temporaries", "gradients in fp32 for the update", value, formula, stack.source
            )
