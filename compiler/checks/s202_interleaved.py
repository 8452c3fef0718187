"""The interleaved schedule does not come out even.

What
    Under `interleaved` the number of microbatches is a multiple of pp.
Why
    Each rank takes pp microbatches through its first chunk, the same ones through its next, and so
    on. With a remainder the last round has holes, which the schedule does not know how to fill.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      schedule = interleaved(chunks = 2)
      #          ^^^^^^^^^^^^^^^^^^^^^^^ S202
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 24
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      schedule = interleaved(chunks = 2)
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 32
    }
Source
    arXiv:2104.04473, section 2.2.2; Megatron-Core, pipeline_parallel.schedules.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import microbatches, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "S202"
TITLE = "the interleaved schedule does not come out even"
READS = microbatches.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    number, pp = subject.microbatches, subject.parallel.pp
    if subject.parallel.schedule.name != "interleaved" or number is None or number % pp == 0:
        return
    span, label = subject.label("parallel.schedule", f"wants a multiple of {pp} microbatches")
    near = microbatches.near(subject, least=pp, multiple=pp)
    many = words.counted(number, "microbatch", "microbatches")
    yield error(
        CODE,
        f"{many} {'is' if number == 1 else 'are'} no multiple of pp = {pp}",
        span,
        label,
        also=[
            subject.label("parallel.pp", words.counted(pp, "pipeline rank")),
            *microbatches.places(subject),
        ],
        notes=[microbatches.arithmetic(subject), words.leaves(number, pp)],
        help=near.help,
        fixes=near.fixes,
    )
