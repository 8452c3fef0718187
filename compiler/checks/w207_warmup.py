"""The warm-up is longer than the run.

What
    A warning where `warmup` (for `wsd` with `decay`) takes as many steps as the run has.
Why
    The learning rate never reaches its peak, or the decay begins before the warm-up has ended.
    Mostly a step count was meant for another batch, or tokens were taken for steps.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      steps = 1000
      lr_schedule = cosine(warmup = 2000)
      #                             ^^^^ W207
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      steps = 100_000
      lr_schedule = cosine(warmup = 2000)
    }
Source
    Megatron-LM, optimizer_param_scheduler: warm-up steps are fewer than decay steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W207"
TITLE = "the warm-up is longer than the run"
READS = ("train.lr_schedule",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    schedule, train = subject.train.lr_schedule, subject.train
    path, steps = "train.steps", train.steps
    if steps is None and subject.has(("train.tokens", "train.seq", "train.global_batch")):
        assert train.tokens is not None
        path, steps = "train.tokens", -(-train.tokens // (train.global_batch * train.seq))
    warmup, decay = schedule.get("warmup") or 0, schedule.get("decay") or 0
    if steps is None or not warmup or warmup < steps - decay or (decay and warmup == steps - decay):
        return
    span, label = subject.label("train.lr_schedule.warmup", words.counted(warmup, "step"))
    also = [subject.label(path, f"{words.counted(steps, 'step')} in all")]
    said = f"the warm-up takes {warmup}"
    if decay:
        also.append(subject.label("train.lr_schedule.decay", words.counted(decay, "step")))
        said = f"warm-up and decay take {warmup} + {decay}"
    yield warning(CODE, f"{said} of {words.counted(steps, 'step')}", span, label, also=also)
