"""ZeRO-2 sends gradients of each microbatch over a network that cannot keep up.

What
    A warning where `zero = 2` shards over several nodes, a step has several microbatches, sending
    the gradients of one takes longer than its backward, and `zero = 1` would fit.
Why
    A rank of stage 2 keeps its own part of the gradients alone, so each microbatch reduces all of
    them. Stage 1 sums them in place and sends them once a step.
Example
    model from "llama3.2-3b"
    cluster {
      nodes = 4
      node from "a100-40gb-8" {
        nic { count = 1, bandwidth = 10Gb/s }
      }
    }
    parallel {
      zero = 2
      #      ^ N212
    }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 256
      recompute = full
    }
Instead
    model from "llama3.2-3b"
    cluster {
      nodes = 4
      node from "a100-40gb-8" {
        nic { count = 1, bandwidth = 10Gb/s }
      }
    }
    parallel {
      zero = 1
    }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 256
      recompute = full
    }
Source
    DeepSpeed issue 2252: reduced after every backward; gpt-neox issue 965: stage 1 brought the
    speed back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import budget, cards, fix, microbatches, suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "N212"
TITLE = "ZeRO-2 sends gradients of each microbatch over a network that cannot keep up"
READS = (
    *microbatches.READS,
    "layout",
    "parallel.zero",
    "parallel.shard",
    "train.seq",
    "train.precision",
    "cluster.node.gpu",
    "cluster.node.nic.count",
    "cluster.node.nic.bandwidth",
)
ALLOWED = False

REACHED: Final = 0.4
"""The share of the peak that a good run computes at."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, train, node = subject.parallel, subject.train, subject.cluster.node
    peak = node.gpu.fp16_flops if train.precision == "fp16" else node.gpu.bf16_flops
    number = subject.microbatches
    # In a pipeline stage 2 is told at any speed.
    if parallel.zero != 2 or parallel.pp > 1 or number is None or number < 2 or peak is None:
        return
    # How much each expert computes depends on the router; none of it is told for a mixture.
    if subject.spec.model is not None and subject.spec.model.experts is not None:
        return
    reach = subject.laid_out.reach("shard")
    if reach.nodes == 1 or reach.link != "fabric":
        return
    tokens = train.micro_batch * train.seq // parallel.cp
    if not tokens:  # told elsewhere
        return
    speed = cards.speed(subject, "shard")
    ratio = (2 / speed) / (4 * tokens / (REACHED * peak))
    if ratio <= 1:
        return
    times = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"
    lower = {"parallel.zero": 1}
    if not suggest.holds(subject, lower) or not budget.fits(subject.with_values(lower)):
        return
    yield warning(
        CODE,
        f"sending gradients takes {times} times as long as their backward, {number} times a step",
        *subject.label("parallel.zero", "reduced with each microbatch"),
        also=[
            subject.label("cluster.node.nic.bandwidth", f"{words.speed(speed)} a node"),
            *microbatches.places(subject),
        ],
        notes=[
            microbatches.arithmetic(subject),
            f"a parameter: 2 bytes over {words.speed(speed)}, against 4 · {tokens} operations "
            f"at {words.percent(REACHED)} of {peak / 1e12:.4g} TFLOP/s",
        ],
        help=["zero = 1 sends gradients once a step, and fits"],
        fixes=fix.set_fields(subject, lower),
    )
