"""The global batch does not come out even.

What
    global_batch = micro_batch · microbatches · dp, with a whole number of microbatches.
Why
    Every replica takes the same number of microbatches in a step. DeepSpeed says the same as
    train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · dp, and
    Megatron as global-batch-size, micro-batch-size and the number of microbatches. Only dp
    multiplies the batch: TP, CP and PP ranks work on the same sequences.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel { tp = 2, zero = 1 }
    train {
      seq = 8Ki
      micro_batch = 2
      global_batch = 250
      #              ^^^ L210
      recompute = full
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel { tp = 2, zero = 1 }
    train {
      seq = 8Ki
      micro_batch = 2
      global_batch = 256
      recompute = full
    }
Source
    Megatron-Core, num_microbatches_calculator; DeepSpeed, config._batch_assertion.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, Fix, error

CODE = "L210"
TITLE = "the global batch does not come out even"
READS = ("train.global_batch", "train.micro_batch", "parallel.dp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    train, dp = subject.train, subject.parallel.dp
    once = train.micro_batch * dp
    if train.global_batch % once == 0:
        return
    span, label = subject.label("train.global_batch", _sequences(train.global_batch))
    fault = "is less than" if train.global_batch < once else "is no multiple of"
    help, fixes = _near(subject, once)
    yield error(
        CODE,
        f"global_batch = {train.global_batch} {fault} micro_batch · dp = {once}",
        span,
        label,
        also=[
            subject.label("train.micro_batch", f"{_sequences(train.micro_batch)} a microbatch"),
            subject.label("parallel.dp", words.counted(dp, "replica")),
        ],
        notes=[
            "global_batch = micro_batch · microbatches · dp",
            f"{train.global_batch} / ({train.micro_batch} · {dp}) leaves "
            f"{train.global_batch % once}",
        ],
        help=help,
        fixes=fixes,
    )


def _near(subject: Subject, once: int) -> tuple[list[str], list[Fix]]:
    """The nearest global batches, and the largest micro-batch that fits this one."""
    batch, dp, pp = subject.train.global_batch, subject.parallel.dp, subject.parallel.pp or 1
    values = {*words.near(batch, once, least=once), *words.near(batch, once * pp, least=once)}
    larger = suggest.choices(subject, "train.global_batch", values, wanted=batch, most=2)
    fitting = words.divisors(batch // dp) if batch % dp == 0 else []
    wanted = subject.train.micro_batch
    smaller = suggest.choices(
        subject, "train.micro_batch", [d for d in fitting if d < wanted], wanted=wanted, most=1
    )
    return [*larger.help, *smaller.help], [*larger.fixes, *smaller.fixes]


def _sequences(number: int) -> str:
    return words.counted(number, "sequence")
