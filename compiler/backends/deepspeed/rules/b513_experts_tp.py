"""Experts under AutoTP with what they do not go with.

What
    A model with experts and tp above 1 has ep above 1, and neither a pipeline, context parallelism
    nor offloading; `etp` is 1 with any tp.
Why
    AutoTP gives the same tokens to all TP ranks, and AutoEP deals them out over the same ranks.
    Without ep the gradients of routed tokens would count once a TP rank; the other combinations
    are refused as not validated, and experts are not cut at all.
Example
    model from "deepseek-v2-lite" { layers = 6 }
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      ep = 1
      #    ^ B513
      zero = 1
    }
Instead
    model from "deepseek-v2-lite" { layers = 6 }
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      ep = 4
      zero = 1
    }
Source
    DeepSpeed, August 2026, module_inject/auto_ep_folding.py: the folding policy.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B513"
TITLE = "experts under AutoTP with what they do not go with"
READS = (
    "model.experts.count",
    "parallel.tp",
    "parallel.ep",
    "parallel.etp",
    "parallel.pp",
    "parallel.cp",
    "parallel.offload",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    if parallel.etp > 1:
        span, label = subject.label("parallel.etp", "cuts each expert")
        yield error(CODE, "deepspeed does not cut experts", span, label, help=["etp = 1"])
    if parallel.tp == 1:
        return
    wrong = {
        "parallel.ep": (parallel.ep == 1, "without ep", "tokens would count once a TP rank"),
        "parallel.pp": (parallel.pp > 1, "in a pipeline", "not validated with both"),
        "parallel.cp": (parallel.cp > 1, "beside cp", "excludes tp there"),
        "parallel.offload": (
            parallel.offload.name != "none",
            "offloaded",
            "not validated with both",
        ),
    }
    for path, (there, how, why) in wrong.items():
        if there:
            span, label = subject.label(path, why)
            yield error(
                CODE,
                f"deepspeed does not take experts under tp = {parallel.tp} {how}",
                span,
                label,
                also=[subject.label("parallel.tp", words.ranks("tp", parallel.tp))],
                help=["tp = 1" + (", or ep above 1" if path == "parallel.ep" else "")],
            )
