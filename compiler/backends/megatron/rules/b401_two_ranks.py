"""Two interleaved pipeline ranks without overlapped sends.

What
    With `pp = 2` and `interleaved` the option `overlap_p2p_comm` is not off.
Why
    With two ranks the next and the previous one are the same, and batched sends to it cannot be
    told apart. Overlapped sends can; with them the layout is legal.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 2
      schedule = interleaved(chunks = 2)
    }
    target "megatron" {
      options {
        overlap_p2p_comm = off
        #                  ^^^ B401
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 2
      schedule = interleaved(chunks = 2)
    }
Source
    Megatron-LM, August 2026, training/arguments.py: interleaving needs pp > 2 without overlap;
    issue 750.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B401"
TITLE = "two interleaved pipeline ranks without overlapped sends"
READS = ("parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.pp != 2 or subject.parallel.schedule.name != "interleaved":
        return
    if options.asked(subject, "megatron", "overlap_p2p_comm") is not False:
        return
    yield error(
        CODE,
        "two interleaved pipeline ranks need overlapped sends",
        options.place(subject, "megatron", "overlap_p2p_comm"),
        "sends to the one neighbour cannot be told apart",
        also=[
            subject.label("parallel.pp", "next and previous rank are the same"),
            subject.label("parallel.schedule", "each rank sends both ways"),
        ],
        fixes=options.set_option(subject, "megatron", "overlap_p2p_comm", "on"),
    )
