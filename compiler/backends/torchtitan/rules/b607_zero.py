"""A ZeRO stage that the target does not have.

What
    `zero` is 0, 2 or 3.
Why
    FSDP shards weights, gradients and states together: `zero = 3`, or 2 where weights stay
    gathered between forward and backward. The optimizer's state alone is never sharded.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      zero = 1
      #      ^ B607
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      zero = 3
    }
Source
    torchtitan, August 2026, distributed/fsdp: fully_shard with fsdp_reshard_after_forward.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix, suggest
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B607"
TITLE = "a ZeRO stage that the target does not have"
READS = ("parallel.zero", "parallel.shard")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.zero != 1 or subject.parallel.shard == 1:
        return
    stages = [stage for stage in (3, 2) if suggest.holds(subject, {"parallel.zero": stage})]
    yield error(
        CODE,
        "torchtitan shards weights and gradients with the optimizer state",
        *subject.label("parallel.zero", "the optimizer state alone"),
        help=["`zero = 3`, or 2 with weights kept between forward and backward"],
        fixes=[each for s in stages for each in fix.set_fields(subject, {"parallel.zero": s})],
    )
