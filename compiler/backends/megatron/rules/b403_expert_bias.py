"""Biases in experts that are cut.

What
    With `etp` above 1 the MLP of the experts has no bias.
Why
    The bias of a matrix that is cut by rows would be added once on each rank; grouped kernels
    have no other place for it.
Example
    model from "mixtral-8x7b" { bias = all }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      etp = 2
      #     ^ B403
      ep = 4
      zero = 1
    }
Instead
    model from "mixtral-8x7b" { bias = all }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      etp = 1
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py: add_bias_linear with
    experts needs etp = 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B403"
TITLE = "biases in experts that are cut"
READS = ("model.experts.count", "model.bias", "parallel.etp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.etp == 1 or "mlp" not in subject.model.bias:
        return
    span, label = subject.label("parallel.etp", "cuts the experts' matrices")
    yield error(
        CODE,
        "experts with biases cannot be cut over etp",
        span,
        label,
        also=[subject.label("model.bias", "the MLP has biases")],
        help=["etp = 1"],
    )
