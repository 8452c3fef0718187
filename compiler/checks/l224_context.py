"""Sequences are longer than the model's positions.

What
    `seq` is at most `context`, times the factor by which `rope` stretches positions.
Why
    Learned positions are a table with `context` rows: beyond it there is nothing to look up, an
    error. Rotary and ALiBi positions go on, but the model has not seen them: a warning.
Example
    model from "gpt2-xl"
    cluster { node from "dgx-h100" }
    parallel { tp = 1 }
    train {
      seq = 2Ki
      #     ^^^ L224
      micro_batch = 1
      global_batch = 8
    }
Instead
    model from "gpt2-xl"
    cluster { node from "dgx-h100" }
    parallel { tp = 1 }
    train {
      seq = 1Ki
      micro_batch = 1
      global_batch = 8
    }
Source
    Megatron-LM, arguments.validate_args: max_position_embeddings is at least seq_length.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error, warning

CODE = "L224"
TITLE = "sequences are longer than the model's positions"
READS = ("train.seq", "model.context", "model.position")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    model, seq = subject.model, subject.train.seq
    assert model.context is not None
    stretched = model.rope["scaling"] if model.position == "rope" and model.rope else 1
    if model.rope_scaling is not None and model.rope_scaling.name == "dynamic":
        stretched *= model.rope_scaling["factor"]
    if model.position == "none" or seq <= model.context * stretched:
        return
    learned = model.position == "learned"
    span, label = subject.label("train.seq", f"{seq} tokens")
    reach = f"positions for {model.context} tokens"
    if stretched != 1:
        reach += f", stretched {stretched:g} times"
    yield (error if learned else warning)(
        CODE,
        f"seq = {seq} is more than context = {model.context}",
        span,
        label,
        also=[subject.label("model.context", reach)],
        notes=[
            f"learned positions end at row {model.context}"
            if learned
            else f"no position beyond {model.context} has been seen in training"
        ],
        fixes=fix.set_fields(subject, {"train.seq": model.context}),
    )
