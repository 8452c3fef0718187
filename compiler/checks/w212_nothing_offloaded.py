"""`offload` names nothing that leaves the GPU.

What
    A warning where `offload` is `cpu` or `nvme` without `optimizer` or `params`.
Why
    The place is said and nothing to put there: every byte stays on the GPU.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      zero = 1
      offload = cpu
      #         ^^^ W212
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      zero = 1
      offload = cpu(optimizer)
    }
Source
    arXiv:2101.06840, section 4: what leaves the GPU is chosen part by part.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W212"
TITLE = "`offload` names nothing that leaves the GPU"
READS = ("parallel.offload",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    offload = subject.parallel.offload
    if offload.name == "none" or offload.flags:
        return
    span, label = subject.label("parallel.offload", "nothing is named")
    asked = f"{offload.name}(optimizer)"
    yield warning(
        CODE,
        f"`offload = {offload.name}` moves nothing",
        span,
        label,
        help=[f"`{asked}` moves moments and master weights, `params` the weights too"],
        fixes=fix.set_fields(subject, {"parallel.offload": asked}),
    )
