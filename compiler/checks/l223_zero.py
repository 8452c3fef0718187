"""There is no such ZeRO stage.

What
    `zero` is 0, 1, 2 or 3.
Why
    0 shards nothing, 1 the optimizer's state, 2 the gradients too, 3 the parameters too. Copies on
    the host or on disk, which some call stage 4 or Infinity, are `offload`.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      zero = 4
      #      ^ L223
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      zero = 3
    }
Source
    arXiv:1910.02054, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L223"
TITLE = "there is no such ZeRO stage"
READS = ("parallel.zero",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    zero = subject.parallel.zero
    if zero <= 3:
        return
    span, label = subject.label("parallel.zero", "0, 1, 2 or 3")
    yield error(
        CODE,
        f"zero = {zero}: there are stages 0 to 3",
        span,
        label,
        notes=["1 shards the optimizer's state, 2 the gradients too, 3 the parameters too"],
        fixes=fix.set_fields(subject, {"parallel.zero": 3}),
    )
