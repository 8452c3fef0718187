"""Too few microbatches for DualPipe.

What
    `dualpipe_v` needs at least 2 · pp microbatches. `dualpipe` needs an even pp and an even number
    of at least 2 · pp.
Why
    Both feed the pipeline from two ends at once: each end needs pp microbatches to fill it.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = dualpipe_v
      #          ^^^^^^^^^^ S205
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 4
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      schedule = dualpipe_v
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 8
    }
Source
    github.com/deepseek-ai/DualPipe, dualpipe.py and dualpipev.py: the assertions of `step`.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import microbatches, suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "S205"
TITLE = "too few microbatches for DualPipe"
READS = microbatches.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    name, pp = subject.parallel.schedule.name, subject.parallel.pp
    number = subject.microbatches
    if name not in ("dualpipe", "dualpipe_v") or pp == 1:
        return
    if name == "dualpipe" and pp % 2:
        yield _odd(subject, pp)
    even = 2 if name == "dualpipe" else 1
    if number is None or (number >= 2 * pp and number % even == 0):
        return
    span, label = subject.label("parallel.schedule", "fills the pipeline from both ends")
    near = microbatches.near(subject, least=2 * pp, multiple=even)
    wants = f"at least 2 · pp = {2 * pp}" if number < 2 * pp else "an even number of"
    yield error(
        CODE,
        f"`{name}` needs {wants} microbatches, not {number}",
        span,
        label,
        also=[
            subject.label("parallel.pp", words.counted(pp, "pipeline rank")),
            *microbatches.places(subject),
        ],
        notes=[microbatches.arithmetic(subject)],
        help=near.help,
        fixes=near.fixes,
    )


def _odd(subject: Subject, pp: int) -> Diagnostic:
    span, label = subject.label("parallel.pp", "the two directions need an even number")
    near = suggest.layouts(subject)
    return error(
        CODE,
        f"`dualpipe` with an odd number of pipeline ranks, pp = {pp}",
        span,
        label,
        also=[subject.label("parallel.schedule", "runs microbatches in both directions")],
        help=near.help,
        fixes=near.fixes,
    )
