"""The interleaved schedule with one chunk.

What
    Under `interleaved` each pipeline rank holds at least two chunks.
Why
    It interleaves the chunks of a rank. With one there is nothing to interleave: that schedule is
    `one_f_one_b`.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = interleaved(chunks = 1)
      #                               ^ S203
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
    Megatron-LM, arguments.validate_args: one virtual stage a rank is no interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "S203"
TITLE = "the interleaved schedule with one chunk"
READS = ("parallel.schedule",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule = subject.parallel.schedule
    if schedule.name != "interleaved" or schedule["chunks"] >= 2:
        return
    span, label = subject.label("parallel.schedule.chunks", "two at least")
    yield error(
        CODE,
        "`interleaved` with one chunk a rank interleaves nothing",
        span,
        label,
        help=["`one_f_one_b` is the same schedule with one chunk"],
        fixes=fix.set_fields(subject, {"parallel.schedule": "one_f_one_b"}),
    )
