"""Gradients of many microbatches are summed in bf16.

What
    A warning where `gradients = bf16` and a step sums 64 microbatches or more.
Why
    bf16 keeps 8 significant bits. Once m gradients of one size are summed, the sum is m times as
    large as the next, of which log2(m) bits are rounded away: at 64 two bits are left, at 256
    none. Loss curves then differ from those of fp32 sums, or diverge.
Example
    model from "llama2-7b"
    cluster { node from "dgx-h100" }
    parallel { zero = 1 }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 512
      gradients = bf16
      #           ^^^^ W211
      recompute = full
    }
Instead
    model from "llama2-7b"
    cluster { node from "dgx-h100" }
    parallel { zero = 1 }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 512
      gradients = fp32
      recompute = full
    }
Source
    DeepSpeed issue 2768, and its grad_accum_dtype; Megatron-LM sums bf16 gradients in fp32 unless
    it is told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from typing import Final

from parlay.compiler.checks import budget, fix, microbatches
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W211"
TITLE = "gradients of many microbatches are summed in bf16"
READS = (*microbatches.READS, "train.gradients")
ALLOWED = False

MANY: Final = 64
BITS: Final = 8
"""Significant bits of bf16, the hidden one among them."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    number = subject.microbatches
    if subject.train.gradients != "bf16" or number is None or number < MANY:
        return
    lost = min(int(log2(number)), BITS)
    span, label = subject.label("train.gradients", f"{BITS} significant bits")
    wide = {"train.gradients": "fp32"}
    fits = not subject.searching and budget.fits(subject.with_values(wide))
    yield warning(
        CODE,
        f"the last of {number} gradients keeps {BITS - lost} of {BITS} bits in the sum",
        span,
        label,
        also=microbatches.places(subject),
        notes=[microbatches.arithmetic(subject)],
        help=[] if fits else ["larger microbatches are summed in fp32 by the matrix units"],
        fixes=fix.set_fields(subject, wide) if fits else (),
    )
