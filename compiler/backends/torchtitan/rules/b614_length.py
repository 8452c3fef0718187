"""A length that the target asks more of.

What
    With cp above 1 and sequence parallelism `seq` is a multiple of 2 · cp · tp.
Why
    torchtitan multiplies what cp asks for (2 · cp chunks) by what tp asks for, where their least
    common multiple would cut evenly too, and refuses any other length.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
      cp = 2
    }
    train {
      seq = 4104
      #     ^^^^ B614
      micro_batch = 1
      global_batch = 8
      recompute = full
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
      cp = 2
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 8
      recompute = full
    }
Source
    torchtitan, August 2026, trainer.py: seq_len_divisor = tp · 2 · cp.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, sequence, suggest, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B614"
TITLE = "a length that the target asks more of"
READS = sequence.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    seq, parallel = subject.train.seq, subject.parallel
    tensor = sequence.tensor_unit(parallel)
    unit = 2 * parallel.cp * tensor
    # What no target can cut is told by the general rules.
    if parallel.cp == 1 or seq % unit == 0 or seq % sequence.whole_unit(parallel):
        return
    span, label = subject.label("train.seq", f"{seq} tokens")
    values = words.near(seq, unit, least=unit)
    near = suggest.choices(subject, "train.seq", values, wanted=seq)
    also = [subject.label("parallel.cp", f"2 · {parallel.cp} chunks")]
    if tensor > 1:
        also.append(subject.label("parallel.tp", f"cuts each in {tensor}"))
    yield error(
        CODE,
        f"torchtitan takes multiples of 2 · cp · tp = {unit} alone",
        span,
        label,
        also=also,
        notes=[words.leaves(seq, unit)],
        help=near.help,
        fixes=near.fixes,
    )
