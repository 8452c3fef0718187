"""Full recomputation under a schedule that splits the backward.

What
    A warning where `recompute = full` meets `zero_bubble`, `zbv`, `dualpipe_v` or `dualpipe`.
Why
    These schedules compute the gradient of the input first and that of the weights later, to fill
    idle time. What the first half computes again has to be kept for the second, so most of the
    memory that recomputation saves is held again in between.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = zero_bubble
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 16
      recompute = full
      #           ^^^^ S206
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = one_f_one_b
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 16
      recompute = full
    }
Source
    arXiv:2401.10241, section 4; Primus refuses recomputation under schedules that split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "S206"
TITLE = "full recomputation under a schedule that splits the backward"
READS = ("train.recompute", "parallel.pp", "parallel.schedule")
ALLOWED = False

SPLITTING: Final = ("zero_bubble", "zbv", "dualpipe_v", "dualpipe")


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.parallel.schedule.name
    if subject.parallel.pp == 1 or schedule not in SPLITTING:
        return
    if subject.train.recompute.name != "full":
        return
    span, label = subject.label("train.recompute", "computed again before the first half")
    yield warning(
        CODE,
        f"`{schedule}` keeps what `recompute = full` computes again",
        span,
        label,
        also=[subject.label("parallel.schedule", "splits each backward in two halves")],
        help=["`recompute = selective` keeps less between the halves"],
    )
