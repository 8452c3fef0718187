"""One pipeline stage has much more work than the others.

What
    A warning where the costliest pipeline rank has over 25 % more work than the mean, unless
    `stages = auto` has balanced them.
Why
    A pipeline is as fast as its slowest stage. Work is counted in FLOPs: the head with a large
    vocabulary weighs as much as several layers, and stands on the last stage alone.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 8
      #    ^ S209
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 8
      stages = auto
    }
Source
    Megatron-Bridge issue 5391 and DeepSpeed issue 1378: stages of equal layers, unequal load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from parlay.compiler.checks import fix, suggest, words
from parlay.compiler.checks.degrees import shape_known
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.balance import balanced, head_flops, layer_flops
from parlay.compiler.layout.stages import place_of
from parlay.dsl.diagnostics import Diagnostic, Fix, warning

CODE = "S209"
TITLE = "one pipeline stage has much more work than the others"
READS = ("layout", "whole", "model.layers", "parallel.pp", "parallel.schedule")
ALLOWED = False

MOST: Final = 1.25
BETTER: Final = 0.95
"""What another split must come below, of this one's costliest rank, to be worth a word."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, layout = subject.parallel, subject.laid_out
    # Two copies of every layer (dualpipe) are even by themselves.
    if parallel.pp == 1 or parallel.stages == "auto" or parallel.schedule.name == "dualpipe":
        return
    if not shape_known(subject.model):
        return
    costs = _Costs(subject)
    counts = [stage.layers for stage in layout.stages]
    work = costs.of(counts)
    mean = sum(work) / len(work)
    most = max(work)
    if most <= MOST * mean:
        return
    even = balanced(subject.model, len(counts), seq=costs.seq)
    best = max(costs.of(even))
    rank = work.index(most)
    written = "parallel.stages" if parallel.stages is not None else "parallel.pp"
    share = words.percent(most / mean)
    span, label = subject.label(written, f"rank {rank} has {share} of the mean")
    head = head_flops(subject.model) / costs.layers[-1]
    help, fixes = _help(subject, best / mean) if best <= BETTER * most else _fewer(subject)
    yield warning(
        CODE,
        f"pipeline rank {rank} has {most / mean:.3g} times the work of the mean",
        span,
        label,
        notes=[
            f"layers by stage: {words.listed(counts[:32])}",
            f"the head is as much work as {head:.2g} layers",
        ],
        help=help,
        fixes=fixes,
    )


class _Costs:
    """Forward FLOPs of the pipeline ranks, for any split of the layers."""

    def __init__(self, subject: Subject) -> None:
        model, train = subject.model, subject.spec.train
        self.parallel = subject.parallel
        self.seq = train.seq if train else None
        self.layers = [layer_flops(model, index, seq=self.seq) for index in range(model.layers)]
        head = head_flops(model)
        self.end = head + model.mtp_layers * (self.layers[-1] + head)

    def of(self, counts: Sequence[int]) -> list[int]:
        """FLOPs of each rank, the head on that of the last stage."""
        parallel = self.parallel
        work = [0] * parallel.pp
        first = 0
        for step, number in enumerate(counts):
            rank, _ = place_of(step, schedule=parallel.schedule, pp=parallel.pp)
            work[rank] += sum(self.layers[first : first + number])
            first += number
        work[rank] += self.end
        return work


def _help(subject: Subject, left: float) -> tuple[list[str], tuple[Fix, ...]]:
    if not suggest.holds(subject, {"parallel.stages": "auto"}):
        return [], ()
    help = [f"`stages = auto` leaves {left:.3g} times the mean"]
    return help, fix.set_fields(subject, {"parallel.stages": "auto"})


def _fewer(subject: Subject) -> tuple[list[str], tuple[Fix, ...]]:
    """No split helps: fewer pipeline ranks have more layers to even out with."""
    near = suggest.layouts(subject, fixed=("tp",))
    return ["more layers a rank weigh against the head: a smaller pp", *near.help][:3], near.fixes
