"""`order` names an axis twice.

What
    `order` names every axis at most once.
Why
    It says which axis varies fastest, next, and so on; an axis has one place in that row.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      order = [tp, dp, tp, pp]
      #       ^^^^^^^^^^^^^^^^ L219
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      order = [tp, dp, pp]
    }
Source
    Megatron-Core, RankGenerator: an order is a permutation of the axes.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.degrees import repeated_axes
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L219"
TITLE = "`order` names an axis twice"
READS = ("parallel.order",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    twice = repeated_axes(subject.parallel)
    if not twice:
        return
    once = tuple(dict.fromkeys(subject.parallel.order))
    span, label = subject.label("parallel.order", "fastest first, each axis once")
    yield error(
        CODE,
        f"`order` names {words.listed(twice)} more than once",
        span,
        label,
        fixes=fix.set_fields(subject, {"parallel.order": fix.order_text(once)}),
    )
