"""`recompute` names nothing that the model has.

What
    A warning where `recompute = selective(…)` names experts or the router alone, and the model has
    neither.
Why
    Nothing is computed again, and as much memory is held as without it. What was meant for a model
    with experts was kept for a dense one.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      recompute = selective(experts)
      #           ^^^^^^^^^^^^^^^^^^ W215
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      recompute = selective(mlp)
    }
Source
    Megatron-Core, recompute_modules: a module that a layer does not have is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W215"
TITLE = "`recompute` names nothing that the model has"
READS = ("train.recompute", "train.attention", "model.layers")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    recompute = subject.train.recompute
    if recompute.name != "selective" or subject.model.experts is not None:
        return
    missing = [name for name in recompute.flags if name in ("experts", "router")]
    # Attention under flash keeps nothing to compute again; alone it has a note of its own (W203).
    kept = set(recompute.flags) - {"experts", "router"}
    if not missing or kept - ({"core_attention"} if subject.train.attention == "flash" else set()):
        return
    span, label = subject.label("train.recompute", "the model has no experts")
    yield warning(
        CODE,
        f"nothing is computed again: the model has no {words.listed(missing, 'or')}",
        span,
        label,
        help=["`selective(mlp)`, `selective(norm, activation)` or `full` saves memory"],
        fixes=fix.set_fields(subject, {"train.recompute": "selective(mlp)"}),
    )
