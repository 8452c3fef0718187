"""tp does not divide the inner width of the MLP.

What
    tp divides `ffn`, and the width of all shared experts together.
Why
    The MLP's first matrices are cut by columns and the last by rows, over the same inner width, so
    that one sum over the TP ranks is enough. Each rank needs the same number of columns.
Example
    model from "llama3-8b" { ffn = 11_010 }
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
      #    ^ L204
    }
Instead
    model from "llama3-8b" { ffn = 11_008 }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
Source
    Megatron-Core, tensor_parallel.layers: ColumnParallelLinear and RowParallelLinear divide their
    width by the group's size.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.divide import indivisible
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L204"
TITLE = "tp does not divide the inner width of the MLP"
READS = ("model.ffn", "model.layers", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    model, tp = subject.model, subject.parallel.tp
    if model.ffn % tp and _has_plain_layers(subject):
        yield indivisible(
            subject,
            CODE,
            size="model.ffn",
            degree="parallel.tp",
            needs="each TP rank needs a whole number of columns of the MLP",
            one="column of the MLP",
            many="columns of the MLP",
        )
    experts = model.experts
    if experts is not None and experts.shared and experts.shared_ffn:
        width = experts.shared * experts.shared_ffn
        if width % tp:
            yield _shared(subject, experts.shared, experts.shared_ffn, width, tp)


def _has_plain_layers(subject: Subject) -> bool:
    """Whether some layer has the MLP: experts in every layer leave `ffn` without a meaning."""
    experts, layers = subject.model.experts, subject.model.layers
    if experts is None:
        return True
    if experts.dense_layers is None or experts.every is None:
        return False
    return experts.layers_before(layers) < layers


def _shared(subject: Subject, shared: int, each: int, width: int, tp: int) -> Diagnostic:
    span, label = subject.label(
        "parallel.tp", "each TP rank needs a whole number of columns of the shared experts"
    )
    near = suggest.layouts(subject)
    return error(
        CODE,
        f"tp = {tp} does not divide the {width} columns of the shared experts",
        span,
        label,
        also=[
            subject.label("model.experts.shared", words.counted(shared, "shared expert")),
            subject.label("model.experts.shared_ffn", f"{each} columns each"),
        ],
        notes=[words.product(("shared", "shared_ffn"), (shared, each)), words.leaves(width, tp)],
        help=near.help,
        fixes=near.fixes,
    )
