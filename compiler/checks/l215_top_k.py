"""Tokens visit more experts than there are.

What
    `top_k` is at most `count`, and `top_groups` at most `groups`, which divides `count`.
Why
    The router chooses `top_k` different experts for each token, from `top_groups` of the groups
    that the experts are dealt in.
Example
    model from "mixtral-8x7b" {
      experts {
        top_k = 9
        #       ^ L215
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel { ep = 8, zero = 1 }
Instead
    model from "mixtral-8x7b" {
      experts {
        top_k = 4
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel { ep = 8, zero = 1 }
Source
    Megatron-Core, TransformerConfig: moe_router_topk and moe_router_group_topk.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L215"
TITLE = "tokens visit more experts than there are"
READS = ("model.experts.count", "model.experts.top_k")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    experts = subject.model.experts
    assert experts is not None
    if experts.top_k > experts.count:
        yield _too_many(subject, "top_k", experts.top_k, "count", experts.count, "expert")
    if experts.groups is None or experts.top_groups is None:
        return
    if experts.top_groups > experts.groups:
        yield _too_many(
            subject, "top_groups", experts.top_groups, "groups", experts.groups, "group"
        )
    if experts.count % experts.groups:
        span, label = subject.label("model.experts.groups", "groups are of equal size")
        yield error(
            CODE,
            f"groups = {experts.groups} does not divide the {experts.count} experts",
            span,
            label,
            also=[subject.label("model.experts.count", words.counted(experts.count, "expert"))],
            notes=[words.leaves(experts.count, experts.groups)],
        )


def _too_many(subject: Subject, name: str, asked: int, of: str, there: int, one: str) -> Diagnostic:
    span, label = subject.label(f"model.experts.{name}", "each token visits so many")
    return error(
        CODE,
        f"{name} = {asked} is more than the {words.counted(there, one)} there are",
        span,
        label,
        also=[subject.label(f"model.experts.{of}", words.counted(there, one))],
        fixes=fix.set_fields(subject, {f"model.experts.{name}": there}),
    )
