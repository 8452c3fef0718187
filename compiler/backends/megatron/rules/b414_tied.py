"""Tied embeddings loaded into a long pipeline.

What
    A warning where `tied_embeddings` is on and the pipeline has more than two stages.
Why
    Loading a published checkpoint through Megatron-Bridge sends the shared weight to all stages
    of the embedding group at once, which stages in the middle do not answer. Training from
    scratch is not concerned.
Example
    model from "llama3.2-3b" {
      tied_embeddings = on
      #                 ^^ B414
    }
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      pp = 4
      stages = auto
      zero = 1
    }
Instead
    model from "llama3.2-3b" {
      tied_embeddings = on
    }
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      tp = 4
      zero = 1
    }
Source
    Megatron-LM, August 2026, Megatron-Bridge issue 957: only first and last stage may take
    part; mended for pp without chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, words
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B414"
TITLE = "tied embeddings loaded into a long pipeline"
READS = ("model.tied_embeddings", "parallel.pp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if not subject.model.tied_embeddings or subject.parallel.pp <= 2:
        return
    span, label = subject.label("model.tied_embeddings", "one weight on two stages")
    yield warning(
        CODE,
        f"loading tied embeddings fails with {words.counted(subject.parallel.pp, 'stage')}",
        span,
        label,
        also=[subject.label("parallel.pp", "stages in the middle hold no embedding")],
        help=["pp = 2, or a version of Megatron-Bridge after issue 957"],
    )
