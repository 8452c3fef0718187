"""Experts that are cut otherwise than the dense layers, without ep.

What
    A warning where the model has experts, `ep = 1`, and `etp` is not tp.
Why
    Expert weights are marked as such only where ep is above 1. Without the mark their gradients
    are reduced over the groups of the dense layers, which are others when etp differs from tp.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 4
      etp = 1
      #     ^ B413
      zero = 3
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 4
      etp = 4
      zero = 3
    }
Source
    Megatron-LM, August 2026, issue 5916: gradient norm and reduction of experts for mixes of
    ep, etp and tp.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix, suggest
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B413"
TITLE = "experts that are cut otherwise than the dense layers, without ep"
READS = ("model.experts.count", "parallel.ep", "parallel.etp", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    if parallel.ep != 1 or parallel.etp == parallel.tp:
        return
    span, label = subject.label("parallel.etp", "another cut than tp")
    holds = suggest.holds(subject, {"parallel.etp": parallel.tp})
    yield warning(
        CODE,
        f"experts with ep = 1 and etp = {parallel.etp} are reduced like dense layers of "
        f"tp = {parallel.tp}",
        span,
        label,
        also=[
            subject.label("parallel.ep", "nothing marks the experts"),
            subject.label("parallel.tp", "the cut of the dense layers"),
        ],
        fixes=fix.set_fields(subject, {"parallel.etp": parallel.tp}) if holds else (),
    )
