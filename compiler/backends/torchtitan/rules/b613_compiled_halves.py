"""Compiled modules under a schedule that splits the backward.

What
    `compile = on` does not go with `zero_bubble`, `zbv` or `dualpipe_v`.
Why
    These schedules compute the gradient of the input first and that of the weights later. A
    compiled module has one backward that gives both, and PyTorch refuses the pair.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      schedule = zbv
      stages = auto
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 16
      compile = on
      #         ^^ B613
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      schedule = zbv
      stages = auto
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 16
      compile = off
    }
Source
    torchtitan, August 2026, on torch 2.13: _check_torch_compile_compatibility of
    torch.distributed.pipelining; pytorch issue 161904 and torchtitan issue 3584.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B613"
TITLE = "compiled modules under a schedule that splits the backward"
READS = ("train.compile", "parallel.pp", "parallel.schedule")
ALLOWED = False

SPLITTING: Final = ("zero_bubble", "zbv", "dualpipe_v")


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.parallel.schedule.name
    if not subject.train.compile or subject.parallel.pp == 1 or schedule not in SPLITTING:
        return
    span, label = subject.label("train.compile", "one backward a module")
    yield error(
        CODE,
        f"`{schedule}` does not run compiled modules",
        span,
        label,
        also=[subject.label("parallel.schedule", "splits each backward in two halves")],
        help=["`schedule = interleaved(chunks = 2)` keeps each backward whole"],
        fixes=fix.set_fields(subject, {"train.compile": "off"}),
    )
