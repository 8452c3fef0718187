"""A peak that counts sparsity.

What
    A warning where a peak of the GPU is twice its dense one.
Why
    Data sheets print peaks for matrices of which half the entries are zero. Training has dense
    ones: an H100 reaches 989 TFLOP/s at bf16 at best, not 1,979. With the sparse figure every
    utilisation comes out at half.
Example
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        gpu {
          bf16 = 1979TFLOP/s
          #      ^^^^^^^^^^^ N206
        }
      }
    }
    parallel { tp = 8 }
Instead
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        gpu {
          bf16 = 989.4TFLOP/s
        }
      }
    }
    parallel { tp = 8 }
Source
    NVIDIA H100 data sheet, the footnote: with sparsity.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import devices, literals
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "N206"
TITLE = "a peak that counts sparsity"
READS = ("cluster.node.gpu.memory",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    for field in devices.PEAKS:
        yield from _peak(subject, field)


def _peak(subject: Subject, field: str) -> Iterator[Diagnostic]:
    path = f"{devices.GPU}.{field}"
    literal = literals.written(subject, path)
    written = subject.value(path)
    if literal is None or written is None:
        return
    known = {
        gpu: peak
        for gpu in devices.meant(subject, but=field)
        if (peak := devices.value(gpu, field)) is not None
    }
    # Some GPU's dense peak: nothing says that it is not that one.
    if any(devices.close(written, peak) for peak in known.values()):
        return
    sparse = [gpu for gpu, peak in known.items() if devices.close(written, 2 * peak)]
    if not sparse:
        return
    dense = devices.text(sparse[0], field)
    yield warning(
        CODE,
        f"{literal.text} is a peak with sparsity, the dense one is {dense}",
        literal.span,
        f"twice what {sparse[0]} does at {field}",
        notes=["half of the entries would have to be zero, in a fixed pattern"],
        help=[f"`{dense}` is dense"],
        fixes=literals.replaced(subject, literal, [dense]),
    )
