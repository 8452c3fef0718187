"""A number of parameters beside a shape.

What
    `params` stands in place of `layers`, `hidden`, `heads`, `ffn` and `vocab`, not beside them.
Why
    Both say how large the model is. Where they differ, memory would be of one model and the layout
    of another.
Example
    model {
      params = 7.5B
      #        ^^^^ T206
      layers = 32
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
Instead
    model { params = 7.5B }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
Source
    The definition of `model.params`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "T206"
TITLE = "a number of parameters beside a shape"
READS = ("model.params",)
ALLOWED = False

SHAPE: Final = ("layers", "hidden", "heads", "ffn", "vocab")


def check(subject: Subject) -> Iterator[Diagnostic]:
    given = [name for name in SHAPE if getattr(subject.model, name) is not None]
    if not given:
        return
    span, label = subject.label("model.params", "the model's size")
    yield error(
        CODE,
        f"`params` stands in place of a shape, and `{given[0]}` is given too",
        span,
        label,
        also=[subject.label(f"model.{given[0]}", "and its shape")],
        help=["a number of parameters is enough for the state ledger, a shape for everything"],
    )
