"""One expert a token under softmax.

What
    With `top_k = 1` and a softmax router the option `moe_router_pre_softmax` is on.
Why
    Softmax over the chosen experts alone is 1 for a single one: the router would get no
    gradient.
Example
    model from "mixtral-8x7b" {
      experts {
        top_k = 1
        #       ^ B404
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
        top_k = 1
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        moe_router_pre_softmax = on
      }
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py: moe_router_topk 1 needs
    moe_router_pre_softmax.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B404"
TITLE = "one expert a token under softmax"
READS = ("model.experts.top_k", "model.experts.router")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    experts = subject.model.experts
    assert experts is not None
    if experts.top_k != 1 or experts.router != "softmax":
        return
    if options.asked(subject, "megatron", "moe_router_pre_softmax") is True:
        return
    if options.asked(subject, "megatron", "moe_router_load_balancing_type") == "sinkhorn":
        return
    span, label = subject.label("model.experts.top_k", "a softmax over one score is 1")
    yield error(
        CODE,
        "top_k = 1 needs the softmax before the choice",
        span,
        label,
        also=[subject.label("model.experts.router", "scores by softmax")],
        help=['`target "megatron" { options { moe_router_pre_softmax = on } }`'],
    )
