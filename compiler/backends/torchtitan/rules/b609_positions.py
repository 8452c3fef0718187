"""Sequences beyond the table of rotary positions.

What
    `seq` is at most `context`.
Why
    torchtitan computes the angles of all positions ahead, up to the model's longest sequence;
    it refuses a longer one, where others go on.
Example
    model from "llama3-8b" {
      context = 8Ki
      rope(theta = 500000, scaling = 2)
    }
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    train {
      seq = 16Ki
      #     ^^^^ B609
      micro_batch = 1
      global_batch = 64
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
    }
Source
    torchtitan, August 2026, models: seq_len is at most the maximum of the rotary embedding.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B609"
TITLE = "sequences beyond the table of rotary positions"
READS = ("train.seq", "model.context", "model.position")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    seq, context = subject.train.seq, subject.model.context
    if subject.model.position != "rope" or context is None or seq <= context:
        return
    span, label = subject.label("train.seq", f"{seq} tokens")
    yield error(
        CODE,
        f"torchtitan has angles for {context} positions, seq = {seq}",
        span,
        label,
        also=[subject.label("model.context", "the longest sequence")],
        fixes=fix.set_fields(subject, {"model.context": seq}),
    )
