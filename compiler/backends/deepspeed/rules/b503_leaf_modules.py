"""Experts under ZeRO 3 that are gathered one by one.

What
    A warning where the model has experts, `ep = 1`, `zero = 3`, and the option `leaf_module` is
    not given.
Why
    Stage 3 gathers a module's weights when it is called. An expert that gets no token on one
    rank is not called there, the others wait for it, and the job hangs. A leaf module is
    gathered as a whole.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      zero = 3
      #      ^ B503
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      zero = 3
    }
    target "deepspeed" {
      options {
        leaf_module = "MoE"
      }
    }
Source
    DeepSpeed, August 2026, utils/z3_leaf_module.py: set_z3_leaf_modules; issue 5066.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B503"
TITLE = "experts under ZeRO 3 that are gathered one by one"
READS = ("model.experts.count", "parallel.ep", "parallel.zero")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.ep != 1 or subject.parallel.zero != 3:
        return
    if options.asked(subject, "deepspeed", "leaf_module") is not None:
        return
    span, label = subject.label("parallel.zero", "gathers each expert when it is called")
    yield warning(
        CODE,
        "an expert without a token is not gathered, and the other ranks wait",
        span,
        label,
        also=[subject.label("model.experts.count", "each is a module of its own")],
        help=['`target "deepspeed" { options { leaf_module = "…" } }` names the block'],
    )
