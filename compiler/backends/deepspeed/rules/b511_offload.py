"""Offloading below the ZeRO stage that it needs.

What
    `offload` of the optimizer needs `zero` of at least 1, of the parameters 3.
Why
    What is offloaded is the part that a rank owns: without sharding the engine has no such
    parts.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      offload = cpu(optimizer)
      #         ^^^^^^^^^^^^^^ B511
      zero = 0
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      offload = cpu(optimizer)
      zero = 1
    }
Source
    DeepSpeed, August 2026, runtime/zero/config.py: offload_optimizer and offload_param.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B511"
TITLE = "offloading below the ZeRO stage that it needs"
READS = ("parallel.offload", "parallel.zero")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    offload, zero = subject.parallel.offload, subject.parallel.zero
    if offload.name == "none":
        return
    least = 3 if "params" in offload.flags else 1
    if zero >= least:
        return
    yield error(
        CODE,
        f"deepspeed offloads this from zero = {least} on",
        *subject.label("parallel.offload", "what a rank owns"),
        also=[subject.label("parallel.zero", "nothing of it is owned by one rank")],
        fixes=fix.set_fields(subject, {"parallel.zero": least}),
    )
