"""Experts that the target would cut by default.

What
    A note where the model has experts, tp is above 1, and `etp` is not given.
Why
    Megatron itself lets an unset expert tensor parallelism follow tp; here it is 1. The emitted
    settings name it, so that the experts are cut as this file says.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      #    ^ B422
      ep = 8
      zero = 1
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      ep = 8
      etp = 1
      zero = 1
    }
Source
    Megatron-LM, August 2026, core/parallel_state.py: expert_tensor_parallel_size defaults to
    tensor_model_parallel_size; Megatron-Bridge issue 4007.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "B422"
TITLE = "experts that the target would cut by default"
READS = ("model.experts.count", "parallel.tp", "parallel.etp", "parallel.ep")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    tp, ep, etp = subject.parallel.tp, subject.parallel.ep, subject.parallel.etp
    # With ep = 1 another rule tells more about it.
    if tp == 1 or subject.written("parallel.etp") or ep == 1:
        return
    span, label = subject.label("parallel.tp", "what etp would be there by default")
    yield note(
        CODE,
        f"etp = {etp} is passed on; the target's own default would be tp = {tp}",
        span,
        label,
        notes=[f"etp · ep = {etp} · {ep} = {etp * ep} ranks hold the experts, not {tp * ep}"],
    )
