"""`sequence_parallel = on` without tensor parallelism.

What
    `sequence_parallel` is on where tp > 1.
Why
    It cuts norms and residual stream along the sequence over the TP ranks. With one such rank there
    is nothing to cut: the file asks for memory that it does not get.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      sequence_parallel = on
      #                   ^^ L214
      zero = 1
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 2
      sequence_parallel = on
    }
Source
    Megatron-Core, ModelParallelConfig refuses it; Megatron-LM turns it off in silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "L214"
TITLE = "`sequence_parallel = on` without tensor parallelism"
READS = ("parallel.tp", "parallel.sequence_parallel")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.tp > 1 or not subject.parallel.sequence_parallel:
        return
    span, label = subject.label("parallel.sequence_parallel", "cuts nothing")
    yield warning(
        CODE,
        "`sequence_parallel` does nothing with tp = 1",
        span,
        label,
        also=[subject.label("parallel.tp", "one TP rank holds whole sequences")],
        fixes=fix.set_fields(subject, {"parallel.sequence_parallel": "off"}),
    )
