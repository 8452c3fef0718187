"""Recomputation of attention under flash attention.

What
    A note where `recompute = selective` names core attention alone and `attention = flash`.
Why
    Selective recomputation drops the matrix of attention scores, which grows with the square of the
    sequence. Flash attention never keeps it: nothing is saved, whatever else is named saves memory.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      recompute = selective
      #           ^^^^^^^^^ W203
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      recompute = selective(mlp)
    }
Source
    arXiv:2205.05198, section 5; arXiv:2205.14135: flash attention keeps statistics alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "W203"
TITLE = "recomputation of attention under flash attention"
READS = ("train.recompute", "train.attention")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    recompute, attention = subject.train.recompute, subject.train.attention
    if recompute.name != "selective" or attention != "flash":
        return
    if set(recompute.flags) - {"core_attention"}:
        return
    span, label = subject.label("train.recompute", "core attention alone")
    yield note(
        CODE,
        "`recompute = selective` saves nothing under flash attention",
        span,
        label,
        also=[subject.label("train.attention", "keeps no matrix of scores")],
        help=["`selective(mlp)`, `selective(norm, activation)` or `full` saves memory"],
        fixes=fix.set_fields(subject, {"train.recompute": "none"}),
    )
