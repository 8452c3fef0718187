"""Experts under tensor parallelism without sequence parallelism.

What
    With experts and tp > 1, `sequence_parallel` is on.
Why
    Experts receive tokens, each once. Under sequence parallelism every TP rank holds its own share
    of them. Without it all TP ranks hold the same tokens, and each would send them to the experts.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      ep = 4
      sequence_parallel = off
      #                   ^^^ L232
      zero = 2
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      ep = 4
      zero = 2
    }
Source
    Megatron-Core, moe_layer: training with tensor parallelism needs sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L232"
TITLE = "experts under tensor parallelism without sequence parallelism"
READS = ("model.experts.count", "parallel.tp", "parallel.sequence_parallel")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, experts = subject.parallel, subject.model.experts
    if parallel.tp == 1 or parallel.sequence_parallel:
        return
    assert experts is not None
    span, label = subject.label("parallel.sequence_parallel", "all TP ranks hold the same tokens")
    yield error(
        CODE,
        "experts need sequence parallelism where tp > 1",
        span,
        label,
        also=[
            subject.label("parallel.tp", words.ranks("tp", parallel.tp)),
            subject.label("model.experts.count", words.counted(experts.count, "expert")),
        ],
        fixes=fix.set_fields(subject, {"parallel.sequence_parallel": "on"}),
    )
