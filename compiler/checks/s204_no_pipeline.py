"""A schedule with several chunks, and no pipeline.

What
    `interleaved`, `zbv`, `dualpipe_v` and `dualpipe` need pp ≥ 2.
Why
    They put several chunks of layers on each rank so that ranks wait less for each other. With one
    rank there is nobody to wait for.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
      schedule = interleaved(chunks = 2)
      #          ^^^^^^^^^^^^^^^^^^^^^^^ S204
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      schedule = interleaved(chunks = 2)
    }
Source
    Megatron-LM, arguments.validate_args: virtual stages need pipeline-model-parallel-size above 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.stages import chunks_of
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "S204"
TITLE = "a schedule with several chunks, and no pipeline"
READS = ("parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.parallel.schedule
    if subject.parallel.pp > 1 or chunks_of(schedule) == 1:
        return
    span, label = subject.label("parallel.schedule", "needs at least two pipeline ranks")
    yield error(
        CODE,
        f"`{schedule.name}` has no pipeline to fill with pp = 1",
        span,
        label,
        also=[subject.label("parallel.pp", "one pipeline rank")],
        fixes=fix.set_fields(subject, {"parallel.schedule": "one_f_one_b"}),
    )
