"""A GPU's memory as it is sold, not as it is.

What
    A note where `gpu.memory` is a round number of gigabytes and the device shows another.
Why
    A "GB" on the box is neither 10^9 nor 2^30 bytes for sure: an H100 of "80 GB" shows 81,559 MiB,
    which is 85.5 GB, an H200 of "141 GB" 143,771 MiB. A literal `80GB` is 80 · 10^9 bytes here.
    Planning with less than there is refuses layouts that fit.
Example
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        gpu {
          memory = 80GB
          #        ^^^^ M202
        }
      }
    }
    parallel { tp = 8 }
Instead
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        gpu {
          memory = 81_559MiB
        }
      }
    }
    parallel { tp = 8 }
Source
    nvidia-smi on each device; the catalog's GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import devices, literals, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "M202"
TITLE = "a GPU's memory as it is sold, not as it is"
READS = ("cluster.node.gpu.memory",)
ALLOWED = False

MOST: Final = 3


def check(subject: Subject) -> Iterator[Diagnostic]:
    path = f"{devices.GPU}.memory"
    literal = literals.written(subject, path)
    if literal is None or literal.unit not in ("GB", "GiB"):
        return
    written: int = subject.value(path)
    shown: dict[str, list[str]] = {}
    for gpu in devices.meant(subject, but="memory"):
        there = devices.value(gpu, "memory")
        assert there is not None
        if devices.close(float(literal.number), there / 2**30, within=0.02):
            shown.setdefault(devices.text(gpu, "memory"), []).append(gpu)
    there_are = [_bytes(gpus[0]) for gpus in shown.values()]
    if not shown or any(devices.close(written, there, within=1e-3) for there in there_are):
        return
    said = [
        f"{words.listed(gpus)}: {text} = {words.memory(_bytes(gpus[0]))}"
        for text, gpus in shown.items()
    ]
    yield note(
        CODE,
        f"{literal.text} is {words.memory(written)}, the device shows "
        f"{words.listed(map(words.memory, there_are), 'or')}",
        literal.span,
        f"{written:,} bytes",
        notes=said,
        fixes=literals.replaced(subject, literal, list(shown)[:MOST]),
    )


def _bytes(gpu: str) -> float:
    there = devices.value(gpu, "memory")
    assert there is not None
    return there
