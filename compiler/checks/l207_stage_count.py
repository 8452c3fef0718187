"""`stages` has the wrong number of entries.

What
    A list of `stages` has pp · chunks entries, in the order in which a microbatch passes them.
Why
    Every pipeline rank holds one run of layers a chunk. A list that is shorter leaves ranks without
    layers, one that is longer has runs without a rank.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      stages = [10, 11, 11]
      #        ^^^^^^^^^^^^ L207
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      stages = [7, 9, 9, 7]
    }
Source
    Megatron-Core, PipelineParallelLayerLayout: the number of stages is a multiple of the pipeline
    size.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.l206_layers import stage_factors
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.stages import steps_of
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L207"
TITLE = "`stages` has the wrong number of entries"
READS = ("parallel.stages", "parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    stages, parallel = subject.parallel.stages, subject.parallel
    steps = steps_of(parallel.schedule, parallel.pp)
    if stages is None or isinstance(stages, str) or len(stages) == steps:
        return
    names, sizes = stage_factors(subject)
    span, label = subject.label("parallel.stages", words.counted(len(stages), "entry", "entries"))
    also = [subject.label("parallel.pp", words.counted(parallel.pp, "pipeline rank"))]
    if len(names) > 1:
        also.append(subject.label("parallel.schedule", f"{sizes[1]} chunks a rank"))
    yield error(
        CODE,
        f"`stages` lists {words.counted(len(stages), 'stage')}, the pipeline has {steps}",
        span,
        label,
        also=also,
        notes=[words.product(names, sizes)],
        help=["`stages = auto` balances the layers by FLOPs"],
        fixes=fix.set_fields(subject, {"parallel.stages": "auto"}),
    )
