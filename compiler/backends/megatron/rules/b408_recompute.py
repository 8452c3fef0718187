"""A part of the layer that the target cannot recompute.

What
    `recompute = selective(…)` names core_attention, mlp, norm, activation or experts; under
    delayed FP8 scaling neither norm nor activation.
Why
    Megatron recomputes by module, and has none for the router. Delayed scaling keeps the
    history of a tensor's maxima, which recomputing would count twice.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      etp = 1
      ep = 8
      zero = 1
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      recompute = selective(mlp, router)
      #           ^^^^^^^^^^^^^^^^^^^^^^ B408
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      etp = 1
      ep = 8
      zero = 1
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      recompute = selective(mlp)
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py: recompute_modules.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, fix, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B408"
TITLE = "a part of the layer that the target cannot recompute"
READS = ("train.recompute", "train.precision")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    recompute = subject.train.recompute
    if recompute.name != "selective":
        return
    refused = [part for part in recompute.flags if part == "router"]
    delayed = options.asked(subject, "megatron", "fp8_recipe") == "delayed"
    if delayed and subject.train.precision == "fp8":
        refused += [part for part in recompute.flags if part in ("norm", "activation")]
    if not refused:
        return
    kept = ", ".join(part for part in recompute.flags if part not in refused)
    span, label = subject.label("train.recompute", f"not {words.listed(refused, 'or')}")
    yield error(
        CODE,
        f"megatron cannot recompute {words.listed(refused)} alone",
        span,
        label,
        help=["it recomputes core_attention, mlp, norm, activation and experts, or whole layers"],
        fixes=fix.set_fields(subject, {"train.recompute": f"selective({kept})"}) if kept else (),
    )
