"""Expert parallelism with ZeRO 3.

What
    With ep above 1 `zero` is at most 2.
Why
    DeepSpeed's expert layers keep their parameters out of the partitioning of stage 3, and
    refuse it. Its automatic expert parallelism takes stage 3 with neither tp, cp nor etp.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 3
      #      ^ B502
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 2
    }
Source
    DeepSpeed, August 2026, moe/layer.py with ZeRO stage 3; issue 2870.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B502"
TITLE = "expert parallelism with ZeRO 3"
READS = ("model.experts.count", "parallel.ep", "parallel.zero")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    if parallel.ep == 1 or parallel.zero < 3:
        return
    span, label = subject.label("parallel.zero", "would shard the experts' weights as well")
    yield error(
        CODE,
        "deepspeed has no expert parallelism with zero = 3",
        span,
        label,
        also=[subject.label("parallel.ep", f"experts on {parallel.ep} ranks")],
        fixes=fix.set_fields(subject, {"parallel.zero": 2}),
    )
