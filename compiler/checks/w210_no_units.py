"""The GPU has no matrix units for the precision.

What
    A warning where `precision` is one that the GPU's data sheet gives no peak for, and gives one
    for another.
Why
    fp8 came with Hopper and Ada, the block-scaled formats (mxfp8, nvfp4) with Blackwell, bf16 with
    Ampere. Elsewhere the kernels refuse, or emulate and are slower than the plain format.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-a100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      precision = fp8
      #           ^^^ W210
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      precision = fp8
    }
Source
    Transformer Engine: FP8 needs compute capability 8.9, MXFP8 and NVFP4 need 10.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W210"
TITLE = "the GPU has no matrix units for the precision"
READS = ("train.precision", "cluster.node.gpu.memory")
ALLOWED = False

UNITS: Final = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp4", "nvfp4": "fp4"}
"""Precision -> the peak that a GPU with such units has; fp4 came together with mxfp8."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    gpu, precision = subject.cluster.node.gpu, subject.train.precision
    known = [name for name in ("bf16", "fp16", "fp8", "fp4") if getattr(gpu, f"{name}_flops")]
    needed = UNITS.get(precision)
    # A sheet with one figure alone is no whole sheet.
    figures = len(known) + (gpu.fp32_flops is not None)
    if needed is None or needed in known or figures < (1 if needed == "bf16" else 2):
        return
    if needed == "bf16" and known != ["fp16"]:
        return
    span, label = subject.label("train.precision", "not among the GPU's peaks")
    best = "bf16" if "bf16" in known else "fp16"
    yield warning(
        CODE,
        f"this GPU has no matrix units for {precision}",
        span,
        label,
        also=[subject.label("cluster.node.gpu.memory", f"peaks at {words.listed(known)}")],
        fixes=fix.set_fields(subject, {"train.precision": best}),
    )
