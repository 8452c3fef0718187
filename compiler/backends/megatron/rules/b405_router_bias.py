"""A correction bias under softmax.

What
    `router_bias = on` goes with `router = sigmoid`.
Why
    The bias moves scores between experts before the choice. Softmax scores add up to 1, and a
    bias on them balances nothing.
Example
    model from "mixtral-8x7b" {
      experts {
        router_bias = on
        #             ^^ B405
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Instead
    model from "mixtral-8x7b" {
      experts {
        router_bias = on
        router = sigmoid
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py:
    moe_router_enable_expert_bias needs sigmoid or sqrtsoftplus.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B405"
TITLE = "a correction bias under softmax"
READS = ("model.experts.router_bias", "model.experts.router")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    experts = subject.model.experts
    assert experts is not None
    if not experts.router_bias or experts.router == "sigmoid":
        return
    span, label = subject.label("model.experts.router_bias", "moves scores before the choice")
    yield error(
        CODE,
        "a correction bias needs sigmoid scores",
        span,
        label,
        also=[subject.label("model.experts.router", "scores add up to 1")],
        fixes=fix.set_fields(subject, {"model.experts.router": "sigmoid"}),
    )
