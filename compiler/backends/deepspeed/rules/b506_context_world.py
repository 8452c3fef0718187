"""Ulysses over a part of the ranks.

What
    A warning where cp is above 1 and there are several replicas.
Why
    In the versions concerned the backward indexes the gathered gradients by the rank in the
    world, not by the rank in the group, and fails on every rank beyond the first group.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 8
      #    ^ B506
      cp_method = ulysses
      zero = 3
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      cp = 8
      cp_method = ulysses
      zero = 3
    }
Source
    DeepSpeed, August 2026, issue 7672: UlyssesSPAttentionHF with sequence_parallel_size below
    the world size.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B506"
TITLE = "Ulysses over a part of the ranks"
READS = ("parallel.cp", "parallel.dp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    cp, dp = subject.parallel.cp, subject.parallel.dp
    if cp == 1 or dp == 1:
        return
    span, label = subject.label("parallel.cp", f"{cp} of {cp * dp} ranks")
    yield warning(
        CODE,
        "the backward of Ulysses fails where a sequence is not cut over all ranks",
        span,
        label,
        also=[subject.label("parallel.dp", f"{dp} replicas")],
        help=[
            "a version with issue 7672 mended; the train.py that is emitted is not concerned, "
            "its attention is `DistributedAttention`"
        ],
    )
