"""A schedule with a decay of no steps.

What
    `lr_schedule = wsd(…)` has a `decay`.
Why
    Megatron wants the number of steps of the last part of warm-up, stable, decay; it has no
    default.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      lr_schedule = wsd(warmup = 100)
      #             ^^^^^^^^^^^^^^^^^ B420
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      lr_schedule = wsd(warmup = 100, decay = 1000)
    }
Source
    Megatron-LM, August 2026, core/optimizer_param_scheduler.py: WSD needs its decay steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B420"
TITLE = "a schedule with a decay of no steps"
READS = ("train.lr_schedule",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.train.lr_schedule
    if schedule.name != "wsd" or schedule["decay"]:
        return
    yield error(
        CODE,
        "megatron needs the steps of the decay",
        *subject.label("train.lr_schedule", "no `decay`"),
        help=["`wsd(warmup = …, decay = …)`"],
    )
