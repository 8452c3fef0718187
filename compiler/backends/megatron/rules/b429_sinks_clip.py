"""Attention sinks under tensor parallelism, and clipped gradients.

What
    A warning where `sinks = on`, tp is above 1 and `clip` is above 0.
Why
    Each TP rank holds the sinks of its own heads, but the parameter is not marked as cut, so the
    norm that clips takes it for a copy and counts the first rank's alone. The norm is too small and
    gradients are scaled down less than was asked, in silence.
Example
    model from "gpt-oss-20b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      #    ^ B429
      ep = 8
      zero = 1
    }
Instead
    model from "gpt-oss-20b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 1
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, August 2026 (core 0.19.2): `softmax_offset` is not marked
    `tensor_model_parallel`; issue 7452, finding 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B429"
TITLE = "attention sinks under tensor parallelism, and clipped gradients"
READS = ("model.sinks", "model.heads", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    tp, train = subject.parallel.tp, subject.spec.train
    clip = 1.0 if train is None or train.clip is None else train.clip
    if not subject.model.sinks or tp == 1 or not clip:
        return
    heads = subject.model.heads
    if heads % tp:
        return
    span, label = subject.label("parallel.tp", f"{heads // tp} of {heads} heads a rank")
    yield warning(
        CODE,
        f"the norm that clips counts the sinks of {heads // tp} of {heads} heads",
        span,
        label,
        also=[subject.label("model.sinks", "one logit a head, cut over tp")],
        help=["tp = 1 counts all of them; so does a version that marks them as cut"],
    )
