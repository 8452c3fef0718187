"""Experts cut by tensor parallelism.

What
    `etp` is 1.
Why
    Expert tensor parallelism was taken out: experts are dealt over ranks as wholes.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      etp = 2
      #     ^ B606
      ep = 4
      zero = 3
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      ep = 8
      zero = 3
    }
Source
    torchtitan, August 2026, parallel_dims.py; expert_tensor_parallel_degree is gone after
    v0.2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix, suggest
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B606"
TITLE = "experts cut by tensor parallelism"
READS = ("model.experts.count", "parallel.etp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.etp == 1:
        return
    holds = suggest.holds(subject, {"parallel.etp": 1})
    yield error(
        CODE,
        "torchtitan no longer cuts experts",
        *subject.label("parallel.etp", "ranks that share an expert"),
        help=["etp = 1, with a larger ep"],
        fixes=fix.set_fields(subject, {"parallel.etp": 1}) if holds else (),
    )
