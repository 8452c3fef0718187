"""Offloading that the target does not have.

What
    `offload` is `none` or `cpu(optimizer)`, and the latter goes with `zero` of at least 1.
Why
    Megatron moves optimizer states to the host through its precision-aware distributed
    optimizer; weights stay, and disks are not used.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      zero = 1
      offload = nvme(optimizer)
      #         ^^^^^^^^^^^^^^^ B409
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      zero = 1
      offload = cpu(optimizer)
    }
Source
    Megatron-LM, August 2026, training/arguments.py: optimizer_cpu_offload needs
    use_precision_aware_optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B409"
TITLE = "offloading that the target does not have"
READS = ("parallel.offload", "parallel.zero")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    offload, zero = subject.parallel.offload, subject.parallel.zero
    if offload.name == "none" or (
        offload.name == "cpu" and "params" not in offload.flags and zero >= 1
    ):
        return
    span, label = subject.label("parallel.offload", "not expressed by this target")
    also = []
    if offload.name == "cpu" and "params" not in offload.flags:
        also.append(subject.label("parallel.zero", "no distributed optimizer"))
    asked: dict[str, object] = {"parallel.offload": "cpu(optimizer)"}
    if zero == 0:
        asked["parallel.zero"] = 1
    yield error(
        CODE,
        "megatron offloads optimizer states to the host, from the distributed optimizer alone",
        span,
        label,
        also=also,
        help=["`offload = cpu(optimizer)` with `zero = 1`"],
        fixes=fix.set_fields(subject, asked),
    )
