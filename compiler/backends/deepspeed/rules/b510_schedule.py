"""A pipeline schedule that the target does not have.

What
    With pp above 1 `schedule = one_f_one_b`.
Why
    DeepSpeed's pipeline engine runs its own 1F1B over one run of layers a rank.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      schedule = interleaved(chunks = 2)
      #          ^^^^^^^^^^^^^^^^^^^^^^^ B510
      zero = 1
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      zero = 1
    }
Source
    DeepSpeed, August 2026, runtime/pipe/schedule.py: TrainSchedule.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B510"
TITLE = "a pipeline schedule that the target does not have"
READS = ("parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.parallel.schedule.name
    if subject.parallel.pp == 1 or schedule == "one_f_one_b":
        return
    yield error(
        CODE,
        f"deepspeed has no schedule `{schedule}`",
        *subject.label("parallel.schedule", "not among the target's schedules"),
        help=["it has `one_f_one_b`"],
        fixes=fix.set_fields(subject, {"parallel.schedule": "one_f_one_b"}),
    )
