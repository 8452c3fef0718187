"""A pipeline schedule that the target does not have.

What
    `schedule` is `one_f_one_b` or `interleaved`.
Why
    Megatron runs 1F1B, plain or interleaved. A schedule that it does not have would become
    another one in silence.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = zero_bubble
      #          ^^^^^^^^^^^ B402
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = one_f_one_b
    }
Source
    Megatron-LM, August 2026, core/pipeline_parallel/schedules.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B402"
TITLE = "a pipeline schedule that the target does not have"
READS = ("parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.parallel.schedule.name
    if subject.parallel.pp == 1 or schedule in ("one_f_one_b", "interleaved"):
        return
    span, label = subject.label("parallel.schedule", "not among the target's schedules")
    yield error(
        CODE,
        f"megatron has no schedule `{schedule}`",
        span,
        label,
        help=["it has `one_f_one_b` and `interleaved`"],
        fixes=fix.set_fields(subject, {"parallel.schedule": "one_f_one_b"}),
    )
