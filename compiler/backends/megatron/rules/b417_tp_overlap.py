"""Overlapped tensor parallelism without sequence parallelism.

What
    The option `tp_comm_overlap` goes with `sequence_parallel = on`.
Why
    The overlap splits the gather and scatter of the sequence into steps between products;
    without sequence parallelism there are all-reduces in their place.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      sequence_parallel = off
      #                   ^^^ B417
    }
    target "megatron" {
      options {
        tp_comm_overlap = on
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    target "megatron" {
      options {
        tp_comm_overlap = on
      }
    }
Source
    Megatron-LM, August 2026, training/arguments.py: tp_comm_overlap needs sequence_parallel.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, Fix, error

CODE = "B417"
TITLE = "overlapped tensor parallelism without sequence parallelism"
READS = ("parallel.tp", "parallel.sequence_parallel")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    asked = options.asked(subject, "megatron", "tp_comm_overlap") is True
    if not asked or subject.parallel.sequence_parallel:
        return
    span, label = subject.label("parallel.sequence_parallel", "all-reduces, nothing to split")
    fixes: tuple[Fix, ...] = ()
    if subject.parallel.tp > 1:
        fixes = fix.set_fields(subject, {"parallel.sequence_parallel": "on"})
    yield error(
        CODE,
        "tp_comm_overlap needs sequence parallelism",
        span,
        label,
        also=[(options.place(subject, "megatron", "tp_comm_overlap"), "asked for here")],
        fixes=fixes,
    )
