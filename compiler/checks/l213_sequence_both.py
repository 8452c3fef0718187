"""Context and sequence parallelism together do not cut the sequence evenly.

What
    With both, `seq` is a multiple of cp · tp, and of 2 · cp where the sequence is cut in 2 · cp
    chunks.
Why
    A CP rank's share of the sequence is cut again over its TP ranks. Each of the two may divide the
    sequence alone, and the share of the share still be no whole number.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 4, cp = 2 }
    train {
      seq = 4_100
      #     ^^^^^ L213
      micro_batch = 1
      global_batch = 8
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 4, cp = 2 }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 8
    }
Source
    torchtitan, trainer: tokens of a microbatch divide by tp · 2 · cp.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import sequence, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L213"
TITLE = "context and sequence parallelism together do not cut the sequence evenly"
READS = sequence.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    seq, parallel = subject.train.seq, subject.parallel
    context, tensor = sequence.context_unit(parallel), sequence.tensor_unit(parallel)
    unit = sequence.whole_unit(parallel)
    if seq % context or seq % tensor or seq % unit == 0:
        return
    span, label = subject.label("train.seq", f"{seq} tokens")
    near = sequence.near(subject)
    yield error(
        CODE,
        f"seq = {seq} is no multiple of {unit}, which cp = {parallel.cp} and tp = {parallel.tp} "
        "ask for together",
        span,
        label,
        also=[
            subject.label("parallel.cp", f"{parallel.cp} shares of {seq // parallel.cp} tokens"),
            subject.label("parallel.tp", f"each share is cut over {parallel.tp} ranks"),
        ],
        notes=[
            f"{seq} / {parallel.cp} = {seq // parallel.cp}",
            words.leaves(seq // parallel.cp, unit // parallel.cp),
        ],
        help=near.help,
        fixes=near.fixes,
    )
