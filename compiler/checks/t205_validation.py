"""Everything is held out.

What
    `validation` is below 1.
Why
    It is the share of the data that training never sees. At 1 nothing is left to train on.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 1, zero = 1 }
    data {
      validation = 100%
      #            ^^^^ T205
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 1, zero = 1 }
    data {
      validation = 1%
    }
Source
    The definition of a held-out share.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "T205"
TITLE = "everything is held out"
READS = ("data.validation",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.value("data.validation") < 1:
        return
    span, label = subject.label("data.validation", "the share that is held out")
    yield error(CODE, "a validation share of 100% leaves nothing to train on", span, label)
