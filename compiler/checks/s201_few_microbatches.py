"""Fewer microbatches than pipeline stages.

What
    A warning where a step has fewer microbatches than the pipeline has stages.
Why
    Under gpipe and 1F1B the idle share of a step is (pp - 1) / (m + pp - 1). With m < pp some ranks
    are idle most of the step.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      #    ^ S201
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 8
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 128
    }
Source
    arXiv:2104.04473, section 2.2.1. Legal everywhere, refused by some: nanotron wants pp - 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import microbatches, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "S201"
TITLE = "fewer microbatches than pipeline stages"
READS = microbatches.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    number, parallel = subject.microbatches, subject.parallel
    if parallel.schedule.name not in ("gpipe", "one_f_one_b", "zero_bubble"):
        return
    if number is None or number >= parallel.pp:
        return
    pp = parallel.pp
    span, label = subject.label("parallel.pp", words.counted(pp, "stage"))
    notes = [microbatches.arithmetic(subject)]
    if parallel.schedule.name != "zero_bubble":
        idle = (pp - 1) / (number + pp - 1)
        notes.append(
            f"idle share: (pp - 1) / (m + pp - 1) = {pp - 1} / {number + pp - 1} = "
            f"{words.percent(idle)}"
        )
    near = microbatches.near(subject, least=pp)
    yield warning(
        CODE,
        f"{words.counted(number, 'microbatch', 'microbatches')} cannot fill a pipeline of {pp} "
        "stages",
        span,
        label,
        also=microbatches.places(subject),
        notes=notes,
        help=near.help,
        fixes=near.fixes,
    )
