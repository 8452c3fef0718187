"""A pipeline stage without an expert layer under an auxiliary loss.

What
    A warning where `experts.aux_loss` is above 0 and a pipeline rank holds layers without experts
    alone.
Why
    The load-balancing loss is collected from the layers with experts and reduced over the pipeline.
    A rank without one has nothing to bring; frameworks have hung there, waiting for it.
Example
    model from "mixtral-8x7b" {
      experts {
        aux_loss = 0.01
        dense_layers = 4
        #              ^ S207
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      pp = 8
      ep = 4
      zero = 1
    }
Instead
    model from "mixtral-8x7b" {
      experts {
        aux_loss = 0.01
        dense_layers = 4
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      pp = 4
      ep = 4
      zero = 1
    }
Source
    Megatron-LM issue 1444: ranks without an expert layer hang in the reduction of the loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "S207"
TITLE = "a pipeline stage without an expert layer under an auxiliary loss"
READS = (
    "layout",
    "model.experts.aux_loss",
    "model.experts.dense_layers",
    "model.experts.every",
    "parallel.pp",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    experts, pp = subject.model.experts, subject.parallel.pp
    assert experts is not None
    if not experts.aux_loss or pp == 1:
        return
    held = [0] * pp
    for stage in subject.laid_out.stages:
        mixed = experts.layers_before(stage.last + 1) - experts.layers_before(stage.first)
        held[stage.stage] += mixed
    bare = [rank for rank in range(pp) if held[rank] == 0]
    if not bare:
        return
    ranks = words.listed([*bare[:5], "more"] if len(bare) > 5 else bare)
    what = "pipeline rank" if len(bare) == 1 else "pipeline ranks"
    path = "model.experts.dense_layers" if experts.dense_layers else "model.experts.every"
    span, label = subject.label(path, _words(experts.dense_layers, experts.every))
    near = suggest.layouts(subject, fixed=("tp",))
    yield warning(
        CODE,
        f"{what} {ranks} {'holds' if len(bare) == 1 else 'hold'} no expert layer, and `aux_loss` "
        "is asked for",
        span,
        label,
        also=[
            subject.label("model.experts.aux_loss", "collected from every expert layer"),
            subject.label("parallel.pp", words.counted(pp, "pipeline rank")),
        ],
        notes=[f"expert layers by pipeline rank: {words.listed(held[:16], 'and')}"],
        help=near.help,
        fixes=near.fixes,
    )


def _words(dense: int, every: int) -> str:
    if dense:
        verb = "has" if dense == 1 else "have"
        return f"the first {words.counted(dense, 'layer')} {verb} no experts"
    return f"one layer in {every} has experts"
