"""`order` leaves out an axis that has ranks.

What
    `order` names every axis above size 1.
Why
    Where the ranks of an axis stand decides which wires its traffic takes. An axis of size 1 has no
    traffic and may be left out.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      order = [tp, pp]
      #       ^^^^^^^^ L220
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      order = [tp, dp, pp]
    }
Source
    Megatron-Core, RankGenerator: every axis above size 1 must be in the order.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.degrees import missing_axes, repeated_axes
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.orders import DENSE
from parlay.dsl.diagnostics import Diagnostic, Fix, error

CODE = "L220"
TITLE = "`order` leaves out an axis that has ranks"
READS = ("parallel.order",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    missing = missing_axes(subject.parallel)
    if not missing:
        return
    span, label = subject.label("parallel.order", f"{words.listed(missing)} may be missing here")
    fixes: tuple[Fix, ...] = ()
    if not repeated_axes(subject.parallel):
        whole = fix.order_text(_completed(subject.parallel.order, missing))
        fixes = fix.set_fields(subject, {"parallel.order": whole})
    yield error(
        CODE,
        f"`order` leaves out {words.listed(missing)}",
        span,
        label,
        also=[
            subject.label(f"parallel.{axis}", words.ranks(axis, getattr(subject.parallel, axis)))
            for axis in missing
        ],
        fixes=fixes,
    )


def _completed(order: tuple[str, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    """The order with each missing axis before the first named one that the default puts later."""
    axes = list(order)
    for axis in missing:
        later = DENSE[DENSE.index(axis) + 1 :]
        at = next((axes.index(name) for name in axes if name in later), len(axes))
        axes.insert(at, axis)
    return tuple(axes)
