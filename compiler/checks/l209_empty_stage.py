"""A stage holds no layer.

What
    Every stage of the pipeline has at least one layer, and there are no more stages than layers.
Why
    A rank without a layer has nothing to compute and still waits for its neighbours. Embedding and
    head belong to the first and the last stage and make none of their own.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      stages = [16, 16, 0, 0]
      #        ^^^^^^^^^^^^^^ L209
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      stages = [9, 9, 8, 6]
    }
Source
    picotron and torchtitan: every pipeline rank needs a layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, suggest, words
from parlay.compiler.checks.l206_layers import stage_factors
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.stages import steps_of
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L209"
TITLE = "a stage holds no layer"
READS = ("parallel.stages", "model.layers", "parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    stages = subject.parallel.stages
    if stages is None:
        return
    if isinstance(stages, str):
        yield from _too_many(subject)
        return
    empty = [number for number, layers in enumerate(stages) if layers == 0]
    if not empty:
        return
    one = len(empty) == 1
    span, label = subject.label("parallel.stages", "every stage needs a layer")
    yield error(
        CODE,
        f"{'stage' if one else 'stages'} {words.listed(empty)} {'holds' if one else 'hold'} "
        "no layer",
        span,
        label,
        notes=["stages count from 0"],
        help=["`stages = auto` balances the layers by FLOPs"],
        fixes=fix.set_fields(subject, {"parallel.stages": "auto"}),
    )


def _too_many(subject: Subject) -> Iterator[Diagnostic]:
    """`stages = auto` with fewer layers than stages."""
    layers, parallel = subject.model.layers, subject.parallel
    steps = steps_of(parallel.schedule, parallel.pp)
    if steps <= layers:
        return
    span, label = subject.label("parallel.pp", words.counted(steps, "stage"))
    near = suggest.layouts(subject)
    yield error(
        CODE,
        f"{words.counted(layers, 'layer')} cannot fill {words.counted(steps, 'stage')}",
        span,
        label,
        also=[subject.label("model.layers", words.counted(layers, "layer"))],
        notes=[words.product(*stage_factors(subject))],
        help=near.help,
        fixes=near.fixes,
    )
