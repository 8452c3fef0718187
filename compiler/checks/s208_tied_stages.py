"""Tied embeddings on two pipeline stages.

What
    A note where `tied_embeddings` is on and the pipeline has several ranks.
Why
    The first stage looks tokens up in the embedding, the last one multiplies by it. Both keep a
    copy of the weight and of its state, and add up its gradients every step.
Example
    model from "llama3.2-1b" {
      tied_embeddings = on
      #                 ^^ S208
    }
    cluster { node from "dgx-h100" }
    parallel {
      pp = 2
      zero = 1
    }
Instead
    model from "llama3.2-1b" {
      tied_embeddings = on
    }
    cluster { node from "dgx-h100" }
    parallel {
      zero = 1
    }
Source
    Megatron-Core, finalize_model_grads: the embedding group of first and last stage.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.stages import FOLDED
from parlay.compiler.ledger.state import WIDTHS, bytes_per_parameter
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "S208"
TITLE = "tied embeddings on two pipeline stages"
READS = (
    "model.tied_embeddings",
    "model.vocab",
    "model.hidden",
    "parallel.pp",
    "parallel.tp",
    "parallel.schedule",
    "whole",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    model, parallel = subject.model, subject.parallel
    beside = (*FOLDED, "dualpipe")  # embedding and head are on one rank
    if not model.tied_embeddings or parallel.pp == 1 or parallel.schedule.name in beside:
        return
    train = subject.spec.train
    weights = model.vocab * model.hidden // parallel.tp
    each = bytes_per_parameter(train)
    gradients = (WIDTHS[train.gradients] if train and train.gradients else 4) * weights
    frozen = train is not None and train.lora is not None
    summed = f"{words.memory(gradients)} of gradients added up between them every step"
    span, label = subject.label("model.tied_embeddings", "one weight, used at both ends")
    yield note(
        CODE,
        "the first and the last stage each keep the embedding",
        span,
        label,
        also=[subject.label("parallel.pp", words.counted(parallel.pp, "pipeline rank"))],
        notes=[
            f"{words.memory(weights * each.total)} of state on each, before ZeRO shards it",
            "no gradients: the model under adapters is frozen" if frozen else summed,
        ],
    )
