"""A pipeline with ZeRO 2 or 3.

What
    With pp above 1 `zero` is 0 or 1.
Why
    The pipeline engine sums gradients over microbatches itself; sharded gradients or weights
    would have to be scattered with each of them. It refuses.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 2
      zero = 2
      #      ^ B501
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 2
      zero = 1
    }
Source
    DeepSpeed, August 2026, runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible with
    pipeline parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B501"
TITLE = "a pipeline with ZeRO 2 or 3"
READS = ("parallel.zero", "parallel.pp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    zero, pp = subject.parallel.zero, subject.parallel.pp
    if pp == 1 or zero < 2:
        return
    span, label = subject.label("parallel.zero", "more than optimizer state is sharded")
    yield error(
        CODE,
        f"deepspeed has no pipeline with zero = {zero}",
        span,
        label,
        also=[subject.label("parallel.pp", f"{pp} pipeline ranks")],
        fixes=fix.set_fields(subject, {"parallel.zero": 1}),
    )
