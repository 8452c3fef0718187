"""tp cuts the matrices below a tile.

What
    A warning where a rank's share of the heads' width, of ffn or of an expert's ffn is narrower
    than 128.
Why
    The kernels of matrix units work on tiles of 128 columns and more. A narrower share leaves part
    of each tile empty, and the traffic of tp stays the same.
Example
    model from "gpt2-xl" {
      heads = 32
      kv_heads = 32
      head_dim = 16
      vocab = 50_304
    }
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
      #    ^ W206
    }
Instead
    model from "gpt2-xl" {
      heads = 32
      kv_heads = 32
      head_dim = 16
      vocab = 50_304
    }
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
    }
Source
    NVIDIA, Matrix Multiplication Background User's Guide: tile quantization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import suggest
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W206"
TITLE = "tp cuts the matrices below a tile"
READS = ("parallel.tp", "parallel.etp", "cluster.node.gpu.memory")
ALLOWED = False

TILE: Final = 128


def check(subject: Subject) -> Iterator[Diagnostic]:
    model, gpu = subject.spec.model, subject.cluster.node.gpu
    # Without matrix units (a CPU) there are no tiles.
    if model is None or (gpu.bf16_flops or gpu.fp16_flops) is None:
        return
    parallel, experts = subject.parallel, model.experts
    # What tp does not divide is told elsewhere.
    if model.heads and model.heads % parallel.tp:
        return
    widths = [] if model.mla else [("tp", "model.heads", _heads(subject))]
    # Where every layer has experts, nothing is as wide as ffn.
    if experts is None or experts.dense_layers or experts.every != 1:
        widths.append(("tp", "model.ffn", model.ffn))
    if experts is not None:
        widths.append(("etp", "model.experts.ffn", experts.ffn))
    for axis, path, width in widths:
        size = getattr(parallel, axis)
        # What is narrow before it is cut is the model's own choice.
        if size > 1 and width and width >= TILE and width / size < TILE and width % size == 0:
            yield _narrow(subject, f"parallel.{axis}", path, width // size)


def _heads(subject: Subject) -> int | None:
    model = subject.model
    return model.heads * model.head_dim if model.heads and model.head_dim else None


def _narrow(subject: Subject, degree: str, path: str, share: int) -> Diagnostic:
    span, label = subject.label(degree, f"{share} columns on each rank")
    near = suggest.layouts(subject) if degree == "parallel.tp" else suggest.Help()
    name = "the heads' width" if path == "model.heads" else path.removeprefix("model.")
    return warning(
        CODE,
        f"{degree.rpartition('.')[2]} leaves {share} columns of {name}, less than a tile of {TILE}",
        span,
        label,
        also=[subject.label(path, f"{share * subject.value(degree)} wide before the cut")],
        help=near.help,
        fixes=near.fixes,
    )
