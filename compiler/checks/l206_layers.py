"""The layers do not split evenly over the pipeline.

What
    Without `stages`, pp · chunks divides `layers`.
Why
    An equal split gives every stage the same number of layers. What is left over has no stage;
    frameworks that divide and round down have trained models with layers missing. An uneven split
    has to be asked for: `stages = auto` balances it, a list says it.
Example
    model from "llama3-8b"
    cluster { nodes = 3, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 3
      #    ^ L206
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 3, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 3
      stages = [11, 11, 10]
    }
Source
    Megatron-LM issues 468 and 326, torchtitan issue 963: layers lost in silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.stages import chunks_of, steps_of
from parlay.compiler.spec.schema import Setting
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L206"
TITLE = "the layers do not split evenly over the pipeline"
READS = ("model.layers", "parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    layers, parallel = subject.model.layers, subject.parallel
    if parallel.stages is not None or subject.written("parallel.stages"):
        return
    steps = steps_of(parallel.schedule, parallel.pp)
    if layers % steps == 0:
        return
    names, sizes = stage_factors(subject)
    said = words.product(names, sizes)
    span, label = subject.label("parallel.pp", words.counted(steps, "stage"))
    also = [subject.label("model.layers", words.counted(layers, "layer"))]
    if len(names) > 1:
        chunks = f"{words.counted(sizes[1], 'chunk')} a rank"
        also.append(subject.label("parallel.schedule", chunks))
    chunked, near = _chunks(subject), suggest.layouts(subject)
    help, fixes = [*chunked.help, *near.help], [*chunked.fixes, *near.fixes]
    if steps < layers:
        help.insert(0, "`stages = auto` splits them unevenly, balanced by FLOPs")
        fixes = [*fix.set_fields(subject, {"parallel.stages": "auto"}), *fixes]
    yield error(
        CODE,
        f"{said} does not divide layers = {layers}",
        span,
        label,
        also=also,
        notes=[words.leaves(layers, steps)],
        help=help[: suggest.MOST],
        fixes=fixes[: suggest.MOST],
    )


def _chunks(subject: Subject) -> suggest.Help:
    """The numbers of chunks nearest to the one asked for that divide the layers."""
    schedule, layers = subject.parallel.schedule, subject.model.layers
    each, rest = divmod(layers, subject.parallel.pp)
    if schedule.name != "interleaved" or rest or subject.searching:
        return suggest.Help()
    fitting = [
        chunks
        for chunks in words.divisors(each)
        if chunks > 1 and suggest.holds(subject, {"parallel.schedule": with_chunks(chunks)})
    ]
    near = words.nearest(schedule["chunks"], fitting, limit=1)
    path = "parallel.schedule.chunks"
    return suggest.Help(
        tuple(f"chunks = {n} fits, {words.counted(each // n, 'layer')} each" for n in near),
        tuple(edit for n in near for edit in fix.set_fields(subject, {path: n})),
    )


def with_chunks(chunks: int) -> Setting:
    """The interleaved schedule with so many chunks."""
    return Setting("interleaved", {"chunks": chunks})


def stage_factors(subject: Subject) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names and sizes whose product is the number of stages."""
    schedule, pp = subject.parallel.schedule, subject.parallel.pp
    chunks = chunks_of(schedule)
    if steps_of(schedule, pp) == pp:
        return ("pp",), (pp,)
    return ("pp", "chunks"), (pp, chunks)
