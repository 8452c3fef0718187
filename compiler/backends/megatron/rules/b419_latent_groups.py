"""Grouped heads under latent attention.

What
    A model with `mla` has as many key/value heads as query heads.
Why
    Latent attention makes keys and values for every head from one latent; there are no groups
    to share them.
Example
    model from "deepseek-v2-lite" {
      kv_heads = 8
      #          ^ B419
    }
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Instead
    model from "deepseek-v2-lite"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, August 2026, training/arguments.py: multi_latent_attention excludes
    group_query_attention.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B419"
TITLE = "grouped heads under latent attention"
READS = ("model.mla.kv_rank", "model.heads", "model.kv_heads")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    heads, kv_heads = subject.model.heads, subject.model.kv_heads
    if heads == kv_heads:
        return
    span, label = subject.label("model.kv_heads", "fewer than the query heads")
    yield error(
        CODE,
        "latent attention has no groups of heads",
        span,
        label,
        also=[subject.label("model.heads", f"{heads} query heads")],
        fixes=fix.set_fields(subject, {"model.kv_heads": heads}),
    )
