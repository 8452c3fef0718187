"""The loss of further tokens under context parallelism.

What
    A warning where `mtp_layers` and cp are above 0 and 1.
Why
    The number of microbatches that scales this loss is multiplied by cp, while gradients are
    divided over dp alone: the loss counts cp times too little, and nothing says so.
Example
    model from "deepseek-v2-lite" {
      mtp_layers = 1
      #            ^ B412
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      cp = 2
      ep = 8
      zero = 1
    }
Instead
    model from "deepseek-v2-lite" {
      mtp_layers = 1
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, August 2026, issue 3943: the loss of multi-token prediction is scaled by 1 /
    cp.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B412"
TITLE = "the loss of further tokens under context parallelism"
READS = ("model.mtp_layers", "parallel.cp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    cp = subject.parallel.cp
    if not subject.model.mtp_layers or cp == 1:
        return
    span, label = subject.label("model.mtp_layers", f"its loss counts 1 / {cp}")
    yield warning(
        CODE,
        f"the loss of further tokens counts {cp} times too little under cp = {cp}",
        span,
        label,
        also=[subject.label("parallel.cp", "multiplies the microbatches that it is divided by")],
    )
