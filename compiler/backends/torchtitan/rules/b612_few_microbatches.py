"""Fewer microbatches than stages, which the target's 1F1B refuses.

What
    With pp above 1 and `schedule = one_f_one_b` a step has at least pp microbatches.
Why
    The schedule of torch.distributed.pipelining raises where there are fewer, and older releases
    waited for the missing ones without end. Elsewhere such a step is slow and legal.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      #    ^ B612
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 2
      recompute = full
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 16
      recompute = full
    }
Source
    torchtitan, August 2026, on torch 2.13: Schedule1F1B of torch.distributed.pipelining; torchtitan
    issue 775.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, microbatches, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B612"
TITLE = "fewer microbatches than stages, which the target's 1F1B refuses"
READS = microbatches.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    number, parallel = subject.microbatches, subject.parallel
    if number is None or number >= parallel.pp or parallel.schedule.name != "one_f_one_b":
        return
    span, label = subject.label("parallel.pp", words.counted(parallel.pp, "stage"))
    near = microbatches.near(subject, least=parallel.pp)
    yield error(
        CODE,
        f"torchtitan's 1F1B refuses {words.counted(number, 'microbatch', 'microbatches')} for "
        f"{parallel.pp} stages",
        span,
        label,
        also=microbatches.places(subject),
        notes=[microbatches.arithmetic(subject)],
        help=near.help,
        fixes=near.fixes,
    )
