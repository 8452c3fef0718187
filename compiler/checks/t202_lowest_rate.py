"""The learning rate rises to its end.

What
    `min_lr` is at most the optimizer's `lr`.
Why
    `min_lr` is where the decay ends. Above the peak the "decay" is a rise, and the last steps are
    the wildest.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      optimizer = adamw(lr = 3e-4)
      lr_schedule = cosine(min_lr = 3e-3)
      #                             ^^^^ T202
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      optimizer = adamw(lr = 3e-4)
      lr_schedule = cosine(min_lr = 3e-5)
    }
Source
    Megatron-LM, optimizer_param_scheduler: min_lr is at most max_lr.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "T202"
TITLE = "the learning rate rises to its end"
READS = ("train.lr_schedule", "train.optimizer")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    peak = subject.train.optimizer["lr"]
    lowest = subject.train.lr_schedule.get("min_lr", 0.0)
    if lowest <= peak:
        return
    span, label = subject.label("train.lr_schedule.min_lr", "where the decay ends")
    yield error(
        CODE,
        f"min_lr = {words.real(lowest)} is above lr = {words.real(peak)}",
        span,
        label,
        also=[subject.label("train.optimizer.lr", "the peak")],
        fixes=fix.set_fields(subject, {"train.lr_schedule.min_lr": words.real(peak / 10)}),
    )
