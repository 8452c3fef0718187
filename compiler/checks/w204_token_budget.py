"""The global batch takes the token budget in a few steps.

What
    A warning where `tokens` is less than a hundred steps of global_batch · seq tokens.
Why
    A model learns by its steps. A budget that is gone after a few of them is a slip of a unit, or a
    batch far beyond what helps.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 1024
      tokens = 100M
      #        ^^^^ W204
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 1024
      tokens = 100B
    }
Source
    arXiv:1812.06162: beyond the critical batch size more samples a step save no steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W204"
TITLE = "the global batch takes the token budget in a few steps"
READS = ("train.tokens", "train.seq", "train.global_batch")
ALLOWED = False

LEAST: Final = 100


def check(subject: Subject) -> Iterator[Diagnostic]:
    train = subject.train
    assert train.tokens is not None
    step = train.global_batch * train.seq
    if train.tokens >= LEAST * step:
        return
    steps = train.tokens // step
    span, label = subject.label("train.tokens", f"{train.tokens:,} tokens")
    yield warning(
        CODE,
        f"the token budget is {words.counted(steps, 'whole step')}"
        if steps
        else "the token budget is less than one step",
        span,
        label,
        also=[
            subject.label("train.global_batch", words.counted(train.global_batch, "sequence")),
            subject.label("train.seq", f"{words.counted(train.seq, 'token')} each"),
        ],
        notes=[f"global_batch · seq = {train.global_batch} · {train.seq} = {step:,} tokens a step"],
    )
