"""`stages` does not hold every layer once.

What
    The entries of `stages` add up to `layers`.
Why
    Each layer stands on exactly one stage. A sum that is smaller trains a model with layers
    missing, a larger one has stages without layers to hold.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      stages = [7, 8, 8, 7]
      #        ^^^^^^^^^^^^ L208
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
    torchtitan issue 963: the sum of the stages must be the number of layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L208"
TITLE = "`stages` does not hold every layer once"
READS = ("parallel.stages", "model.layers")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    stages, layers = subject.parallel.stages, subject.model.layers
    if stages is None or isinstance(stages, str) or sum(stages) == layers:
        return
    held = sum(stages)
    span, label = subject.label("parallel.stages", words.counted(held, "layer"))
    fault = f"{layers - held} too few" if held < layers else f"{held - layers} too many"
    yield error(
        CODE,
        f"`stages` holds {words.counted(held, 'layer')}, the model has {layers}",
        span,
        label,
        also=[subject.label("model.layers", words.counted(layers, "layer"))],
        notes=[f"{' + '.join(map(str, stages))} = {held}: {fault}"],
        help=["`stages = auto` balances the layers by FLOPs"],
        fixes=fix.set_fields(subject, {"parallel.stages": "auto"}),
    )
