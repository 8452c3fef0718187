"""Tied embeddings in a pipeline.

What
    With pp above 1 `tied_embeddings` is off.
Why
    Stages are cut from one module; a weight that two of them share is not kept equal.
Example
    model from "llama3.2-1b" {
      tied_embeddings = on
      #                 ^^ B602
    }
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      pp = 2
      zero = 3
    }
Instead
    model from "llama3.2-1b" {
      tied_embeddings = on
    }
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      tp = 2
      zero = 3
    }
Source
    torchtitan, August 2026, distributed/pipeline_parallel.py: weight tying with pipelines is
    not supported.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B602"
TITLE = "tied embeddings in a pipeline"
READS = ("model.tied_embeddings", "parallel.pp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if not subject.model.tied_embeddings or subject.parallel.pp == 1:
        return
    span, label = subject.label("model.tied_embeddings", "one weight on two stages")
    yield error(
        CODE,
        "torchtitan has no pipeline with tied embeddings",
        span,
        label,
        also=[subject.label("parallel.pp", f"{subject.parallel.pp} pipeline ranks")],
        help=["pp = 1"],
    )
