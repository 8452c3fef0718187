"""Tokens visit more experts than there are.

What
    `top_k` is at most `count`, and `top_groups` at most `groups`, which divides `count`; the groups
    that a token may visit hold `top_k` experts.
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
    elif experts.groups > 1 and experts.top_groups * experts.count < experts.top_k * experts.groups:
        yield _too_few_groups(subject, experts.top_groups, experts.count // experts.groups)
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


def _too_few_groups(subject: Subject, groups: int, each: int) -> Diagnostic:
    top_k = subject.model.experts.top_k if subject.model.experts else 0
    span, label = subject.label("model.experts.top_groups", "groups that a token may visit")
    return error(
        CODE,
        f"{words.counted(groups, 'group')} of {words.counted(each, 'expert')} cannot hold top_k = "
        f"{top_k}",
        span,
        label,
        also=[subject.label("model.experts.top_k", "each token visits so many")],
        fixes=fix.set_fields(subject, {"model.experts.top_groups": -(-top_k // max(each, 1))}),
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
