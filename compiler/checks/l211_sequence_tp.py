"""Sequence parallelism does not cut the sequence evenly.

What
    With `sequence_parallel`, tp divides `seq`.
Why
    Norms and residual stream are cut along the sequence over the TP ranks; gathering and scattering
    them wants equal shares.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 4_100
      #     ^^^^^ L211
      micro_batch = 1
      global_batch = 8
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 8
    }
Source
    Megatron-Core, tensor_parallel.mappings: the first dimension divides by the group's size
    (arXiv:2205.05198, section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import sequence, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L211"
TITLE = "sequence parallelism does not cut the sequence evenly"
READS = sequence.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    seq, tp = subject.train.seq, sequence.tensor_unit(subject.parallel)
    if seq % tp == 0:
        return
    span, label = subject.label("train.seq", f"{seq} tokens")
    near = sequence.near(subject)
    yield error(
        CODE,
        f"tp = {tp} does not divide seq = {seq} under sequence parallelism",
        span,
        label,
        also=[
            subject.label("parallel.tp", f"{tp} ranks share each sequence"),
            subject.label("parallel.sequence_parallel", "norms are cut along the sequence"),
        ],
        notes=[words.leaves(seq, tp)],
        help=near.help,
        fixes=near.fixes,
    )
