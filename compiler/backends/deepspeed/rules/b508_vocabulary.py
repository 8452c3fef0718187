"""A vocabulary that is no multiple of eight.

What
    A warning where the rows of the embedding, after padding, are no multiple of 8.
Why
    Products with such a matrix leave the matrix units; DeepSpeed warns at start-up.
Example
    model from "qwen3-8b" {
      vocab = 151_669
      #       ^^^^^^^ B508
    }
    cluster { nodes = 1, node from "dgx-h100" }
    parallel { zero = 1 }
Instead
    model from "qwen3-8b" {
      vocab = 151_672
    }
    cluster { nodes = 1, node from "dgx-h100" }
    parallel { zero = 1 }
Source
    DeepSpeed, August 2026, runtime/config.py: the alignment of the vocabulary to 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B508"
TITLE = "a vocabulary that is no multiple of eight"
READS = ("model.vocab", "parallel.vocab_multiple", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    unit = subject.parallel.vocab_multiple * subject.parallel.tp
    rows = -(-subject.model.vocab // unit) * unit
    if rows % 8 == 0:
        return
    yield warning(
        CODE,
        f"an embedding of {rows} rows leaves the matrix units idle",
        *subject.label("model.vocab", f"{rows % 8} more than a multiple of 8"),
        fixes=fix.set_fields(subject, {"parallel.vocab_multiple": 8}),
    )
