"""A dispatcher for many nodes inside one.

What
    A warning where `moe_flex_dispatcher_backend` is deepep and the experts of each group lie in one
    node.
Why
    DeepEP saves traffic between nodes: a token goes once to a node and is copied there. Inside of
    one node there is nothing to save, and its own kernels were slower than NCCL's all-to-all.
Example
    model from "qwen3-30b-a3b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      etp = 1
      ep = 4
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = flex
        moe_flex_dispatcher_backend = deepep
        #                             ^^^^^^ B424
      }
    }
Instead
    model from "qwen3-30b-a3b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      etp = 1
      ep = 4
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = alltoall
      }
    }
Source
    Megatron-LM, August 2026, issue 1456: made for cross-node groups of more than 8, the other
    dispatchers are recommended up to that.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, words
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B424"
TITLE = "a dispatcher for many nodes inside one"
READS = ("layout", "model.experts.count", "parallel.ep")
ALLOWED = False

LEAST = 8
"""Ranks from which on the dispatcher is meant, in one node or not."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    name, ep = "moe_flex_dispatcher_backend", subject.parallel.ep
    if options.asked(subject, "megatron", name) != "deepep" or subject.laid_out.expert is None:
        return
    # Without the flexible dispatcher it is not used at all, which is told by that rule.
    if options.asked(subject, "megatron", "moe_token_dispatcher_type") != "flex":
        return
    if ep > LEAST or subject.laid_out.reach("ep").nodes > 1:
        return
    yield warning(
        CODE,
        "`deepep` saves traffic between nodes, and the experts of a group lie in one",
        options.place(subject, "megatron", name),
        "slower than the all-to-all there",
        also=[subject.label("parallel.ep", words.counted(ep, "rank"))],
        help=["`moe_token_dispatcher_type = alltoall` is recommended up to 8 ranks"],
    )
