"""A model with experts has no layer of them.

What
    After `dense_layers` at least `every` layers are left: the last of each such run has experts.
    Where experts are dealt over ranks (`ep`, `etp`) it is an error, else a warning.
Why
    With no such layer the model is a dense one, of other size and speed than its experts say, and
    nothing else tells: degrees of experts are kept and deal out nothing.
Example
    model {
      layers = 24
      hidden = 2048
      heads = 16
      ffn = 8192
      vocab = 32_000
      experts {
        count = 32
        top_k = 4
        ffn = 1024
        dense_layers = 24
        #              ^^ L237
      }
    }
    cluster { node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Instead
    model {
      layers = 24
      hidden = 2048
      heads = 16
      ffn = 8192
      vocab = 32_000
      experts {
        count = 32
        top_k = 4
        ffn = 1024
        dense_layers = 1
      }
    }
    cluster { node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Source
    Megatron-Core, moe_layer_freq: a layer has experts or an MLP.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error, warning

CODE = "L237"
TITLE = "a model with experts has no layer of them"
READS = (
    "model.layers",
    "model.experts.dense_layers",
    "model.experts.every",
    "parallel.ep",
    "parallel.etp",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    layers, experts = subject.model.layers, subject.model.experts
    assert experts is not None
    dense, every = experts.dense_layers, experts.every
    left = layers - dense
    if left >= every:
        return
    if left <= 0:
        path, label = "dense_layers", f"of {words.counted(layers, 'layer')}"
        message = f"dense_layers = {dense} leaves no layer for experts"
        fixes = fix.set_fields(subject, {"model.experts.dense_layers": 0})
    else:
        path, label = "every", f"{words.counted(left, 'layer')} after the dense ones"
        message = f"every = {every} reaches no layer"
        fixes = fix.set_fields(subject, {"model.experts.every": left})
    dealt = subject.parallel.ep * subject.parallel.etp > 1
    yield (error if dealt else warning)(
        CODE,
        message,
        *subject.label(f"model.experts.{path}", label),
        also=[subject.label("model.layers", words.counted(layers, "layer"))],
        notes=[f"layers - dense_layers = {layers} - {dense} = {left}, every = {every}"],
        help=[f"layers = {dense + every} is the least that has a layer of experts"],
        fixes=fixes if left > 0 or every <= layers else (),
    )
