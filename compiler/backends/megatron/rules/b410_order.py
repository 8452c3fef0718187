"""Pipelines that are not last in the order, with experts.

What
    With `pp` above 1 and not last in `order`, expert data parallelism is as large as dp.
Why
    The expert grid is made by its own generator. Where pp varies faster than another axis, its
    pipelines are those of the dense grid only if edp = dp.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 16, node from "gb200-nvl72" }
    parallel {
      tp = 4
      etp = 4
      pp = 2
      ep = 2
      order = [tp, pp, dp]
      #       ^^^^^^^^^^^^ B410
      zero = 1
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 16, node from "gb200-nvl72" }
    parallel {
      tp = 4
      etp = 4
      pp = 2
      ep = 2
      zero = 1
    }
Source
    Megatron-LM, August 2026, core/parallel_state.py: an order that does not end in pp needs
    equal data-parallel sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B410"
TITLE = "pipelines that are not last in the order, with experts"
READS = ("layout", "model.experts.count", "parallel.order", "parallel.pp", "parallel.dp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, layout = subject.parallel, subject.laid_out
    if parallel.pp == 1 or parallel.order[-1] == "pp" or layout.expert is None:
        return
    edp = layout.size("edp")
    if edp == parallel.dp:
        return
    span, label = subject.label("parallel.order", "pp is not last")
    last = (*(axis for axis in parallel.order if axis != "pp"), "pp")
    yield error(
        CODE,
        f"with pp before the end of `order` edp = {edp} has to be dp = {parallel.dp}",
        span,
        label,
        also=[subject.label("parallel.dp", f"{parallel.dp} replicas of the dense layers")],
        fixes=fix.set_fields(subject, {"parallel.order": fix.order_text(last)}),
    )
