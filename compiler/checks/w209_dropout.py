"""Dropout depends on the layout.

What
    A note where `dropout` is above 0 and a degree that cuts activations is above 1.
Why
    Ranks that hold different parts of an activation draw their own masks, ranks that hold the same
    part draw the same one. The masks therefore change with tp, cp, pp and dp: a run under another
    layout is as good, but not the same, and no proof can compare the two.
Example
    model from "llama3-8b" {
      dropout = 10%
      #         ^^^ W209
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 2 }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 2 }
Source
    Megatron-Core, tensor_parallel.random: one seed a TP rank inside, a common one outside.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "W209"
TITLE = "dropout depends on the layout"
READS = ("model.dropout", "parallel.tp", "parallel.cp", "parallel.sequence_parallel")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    axes = [axis for axis in ("tp", "cp") if getattr(parallel, axis) > 1]
    if not subject.model.dropout or not axes:
        return
    span, label = subject.label("model.dropout", "masks are drawn on each rank")
    inside = "heads and ffn columns" if "tp" in axes else "tokens"
    notes = [f"{words.listed(axes)}: other {inside}, another seed on each rank"]
    if parallel.tp > 1 and not parallel.sequence_parallel:
        notes.append("residual stream: the same on all TP ranks, one seed")
    yield note(
        CODE,
        "other degrees give other dropout masks",
        span,
        label,
        also=[
            subject.label(f"parallel.{axis}", words.ranks(axis, getattr(parallel, axis)))
            for axis in axes
        ],
        notes=notes,
    )
