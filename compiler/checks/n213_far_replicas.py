"""Gradients of the replicas take far longer than the step computes.

What
    A warning where replicas lie on m nodes, and adding up their gradients once a step takes more
    than m times as long (4 times, where m is more) as all of the step's computation. ZeRO-2 and
    ZeRO-3 that send with each microbatch have rules of their own (N212, N208).
Why
    Each replica sends its gradients, or its part of them, and gets weights or sums back: at least
    two bytes a parameter each way. A step of few tokens computes for less time than that takes, and
    no overlap can hide it. Where it takes m times as long, the replicas of one node alone are as
    fast as all of them.
Example
    model from "llama3.2-1b"
    cluster {
      nodes = 2
      node from "rtx-4090-8" {
        nic { count = 1, bandwidth = 10Gb/s }
        #                            ^^^^^^ N213
      }
    }
    parallel { zero = 1 }
    train {
      seq = 1Ki
      micro_batch = 1
      global_batch = 16
      recompute = full
    }
Instead
    model from "llama3.2-1b"
    cluster {
      nodes = 2
      node from "rtx-4090-8" {
        nic { count = 1, bandwidth = 10Gb/s }
      }
    }
    parallel { zero = 1 }
    train {
      seq = 1Ki
      micro_batch = 1
      global_batch = 256
      recompute = full
    }
Source
    nccl issue 318 (25 Gb/s a node: two nodes three times slower than one), fairseq issue 789.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from parlay.compiler.checks import cards, microbatches, words
from parlay.compiler.checks.degrees import shape_known
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.parameters import total, weights
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "N213"
TITLE = "gradients of the replicas take far longer than the step computes"
READS = (
    *microbatches.READS,
    "layout",
    "parallel.zero",
    "parallel.shard",
    "train.seq",
    "train.precision",
    "train.recompute",
    "cluster.node.gpu",
    "cluster.node.nic.count",
    "cluster.node.nic.bandwidth",
)
ALLOWED = False

REACHED: Final = 0.4
"""The share of the peak that a good run computes at."""
BYTES: Final = 2 * 2
"""Gradients there, sums or weights back: two bytes a parameter each, where not more."""
TIMES: Final = 4
"""So much longer than the computation is told, however many nodes share it."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, train, gpu = subject.parallel, subject.train, subject.cluster.node.gpu
    peak = gpu.fp16_flops if train.precision == "fp16" else gpu.bf16_flops
    number = subject.microbatches
    if peak is None or number is None or train.precision == "fp32" or train.lora is not None:
        return
    reach = subject.laid_out.reach("dp_cp")
    if reach.nodes == 1 or reach.link != "fabric":
        return
    # What is sent with each microbatch, and what a pipeline makes of ZeRO-2, is told elsewhere.
    shards_leave = subject.laid_out.reach("shard").nodes > 1
    if shards_leave and (parallel.zero == 3 or (parallel.zero == 2 and number > 1)):
        return
    if parallel.zero == 2 and parallel.pp > 1:
        return
    # Sequences shorter than their ranks are told elsewhere.
    if train.micro_batch * train.seq < parallel.cp:
        return
    each = _each(subject, peak, number, reach.nodes)
    if each.ratio <= min(reach.nodes, TIMES):
        return
    times = f"{each.ratio:.0f}" if each.ratio >= 10 else f"{each.ratio:.2g}"
    enough = ceil(number * each.ratio) * train.micro_batch * parallel.dp
    alone = each.ratio > reach.nodes
    rate = f"{words.percent(REACHED)} of {peak / 1e12:.4g} TFLOP/s"
    yield warning(
        CODE,
        f"adding up gradients takes {times} times as long as the step computes",
        *subject.label("cluster.node.nic.bandwidth", f"{words.speed(each.speed)} a node"),
        also=[
            subject.label("cluster.nodes", f"replicas on {reach.nodes} nodes"),
            *microbatches.places(subject),
        ],
        notes=[
            microbatches.arithmetic(subject),
            f"a parameter: {BYTES} · {reach.nodes - 1} / {reach.nodes} bytes over "
            f"{words.speed(each.speed)}, against {each.flops} · {number} · {each.tokens} "
            f"operations at {rate}",
            *_mixture(subject),
            *([f"1 / {reach.nodes} of the GPUs compute {reach.nodes} times as long"] * alone),
        ],
        help=[
            *(["the replicas of one node are faster alone: nothing leaves it"] * alone),
            f"global_batch = {enough} computes as long as it sends",
        ],
    )


def _mixture(subject: Subject) -> list[str]:
    """What is different for experts; nothing where there are none."""
    experts = subject.spec.model.experts if subject.spec.model else None
    if experts is None or not _known(subject):
        return []
    held = words.counted(experts.count // subject.parallel.ep, "expert")
    return [f"a rank has {held} a layer, and each token visits {experts.top_k}"]


def _known(subject: Subject) -> bool:
    """Whether every weight of the model has its size."""
    return subject.whole and shape_known(subject.model)


@dataclass(frozen=True, slots=True)
class _Each:
    """A step of one rank: the network against the matrix units."""

    speed: float
    tokens: int
    flops: int
    ratio: float


def _each(subject: Subject, peak: float, number: int, nodes: int) -> _Each:
    train, parallel = subject.train, subject.parallel
    tokens = train.micro_batch * train.seq // parallel.cp
    full = train.recompute.name == "full" and not train.recompute.options.get("every")
    flops = 8 if full else 6
    speed = cards.speed(subject, "dp_cp")
    part = BYTES * (nodes - 1) / nodes
    moved, computed = part / speed, flops * tokens * number / (REACHED * peak)
    experts = subject.spec.model.experts if subject.spec.model else None
    layout = subject.laid_out
    if experts is None or layout.expert is None or not _known(subject):
        return _Each(speed, tokens, flops, moved / computed)
    # A rank has its own experts alone, and they compute for the tokens of every rank of theirs.
    held = sum(count * row.numel for row, count in weights(subject.model).groups() if row.expert)
    dense = (total(subject.model) - held) / parallel.tp
    moved *= dense
    if layout.reach("edp").nodes > 1:
        own = held / (parallel.ep * parallel.etp)
        moved += own * part / cards.speed(subject, "edp")
    computed *= dense + held * experts.top_k / experts.count / parallel.tp
    return _Each(speed, tokens, flops, moved / computed)
