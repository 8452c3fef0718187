"""`steps` and `tokens` disagree.

What
    Where both are given, steps · global_batch · seq is `tokens`, to one step.
Why
    Both say when the run ends. The learning rate decays over the one while the run may end by the
    other: a schedule cut short, or a tail at the lowest rate.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      steps = 10_000
      tokens = 1T
      #        ^^ L234
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      tokens = 1T
    }
Source
    Megatron-LM, arguments.validate_args: iteration and sample based options exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L234"
TITLE = "`steps` and `tokens` disagree"
READS = ("train.steps", "train.tokens", "train.seq", "train.global_batch")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    train = subject.train
    assert train.tokens is not None and train.steps is not None
    step = train.global_batch * train.seq
    taken = train.steps * step
    if abs(taken - train.tokens) < step:
        return
    span, label = subject.label("train.tokens", f"{train.tokens:,} tokens")
    fixes = fix.set_fields(subject, {"train.tokens": taken})
    if train.tokens >= step:
        fixes = (*fix.set_fields(subject, {"train.steps": train.tokens // step}), *fixes)
    yield error(
        CODE,
        f"steps = {train.steps} is {taken:,} tokens, `tokens` says {train.tokens:,}",
        span,
        label,
        also=[subject.label("train.steps", words.counted(train.steps, "step"))],
        notes=[
            f"steps · global_batch · seq = {train.steps} · {train.global_batch} · {train.seq} = "
            f"{taken:,}"
        ],
        help=["one of the two is enough"],
        fixes=fixes,
    )
