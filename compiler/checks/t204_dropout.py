"""Dropout drops everything.

What
    `dropout` is below 1.
Why
    It is the share of activations that is set to zero; what is left is scaled up by 1 / (1 -
    dropout). At 1 nothing is left, and the scale is infinite.
Example
    model from "llama3-8b" {
      dropout = 100%
      #         ^^^^ T204
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 1, zero = 1 }
Instead
    model from "llama3-8b" {
      dropout = 0
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 1, zero = 1 }
Source
    arXiv:1207.0580.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "T204"
TITLE = "dropout drops everything"
READS = ("model.dropout",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.model.dropout < 1:
        return
    span, label = subject.label("model.dropout", "the share that is set to zero")
    yield error(
        CODE,
        "a dropout of 100% leaves no activation",
        span,
        label,
        fixes=fix.set_fields(subject, {"model.dropout": 0}),
    )
