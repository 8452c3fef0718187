"""The query heads do not divide the width of the model.

What
    Where `head_dim` is unset, `heads` divides `hidden`.
Why
    The width of a head then is hidden / heads. A model whose heads have a width of their own says
    so by `head_dim`.
Example
    model from "llama3-8b" {
      heads = 24
      #       ^^ L205
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
Instead
    model from "llama3-8b" {
      heads = 24
      head_dim = 128
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
Source
    Megatron-LM, arguments.validate_args: hidden_size must be a multiple of num_attention_heads
    where kv_channels is unset.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L205"
TITLE = "the query heads do not divide the width of the model"
READS = ("model.hidden", "model.heads")
ALLOWED = False

USUAL = (64, 80, 96, 128, 192, 256)


def check(subject: Subject) -> Iterator[Diagnostic]:
    hidden, heads = subject.model.hidden, subject.model.heads
    if hidden % heads == 0 or not subject.derived("model.head_dim") or subject.model.mla:
        return
    span, label = subject.label("model.heads", "the width of a head would be no whole number")
    near = words.nearest(max(hidden // heads, 1), USUAL, limit=1)
    yield error(
        CODE,
        f"heads = {heads} does not divide hidden = {hidden}, and head_dim is unset",
        span,
        label,
        also=[subject.label("model.hidden", f"{hidden} wide")],
        notes=[words.leaves(hidden, heads)],
        help=[f"`head_dim`, such as {near[0]}, gives the heads a width of their own"],
        fixes=fix.set_fields(subject, {"model.head_dim": near[0]}),
    )
