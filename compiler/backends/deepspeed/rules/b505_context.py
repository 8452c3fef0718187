"""Context parallelism that is not Ulysses.

What
    With cp above 1 `cp_method = ulysses`, and pp is 1.
Why
    DeepSpeed cuts sequences by its all-to-all over heads alone.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 16
      #    ^^ B505
      zero = 3
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 16
      cp_method = ulysses
      zero = 3
    }
Source
    DeepSpeed, August 2026, sequence/layer.py: DistributedAttention.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B505"
TITLE = "context parallelism that is not Ulysses"
READS = ("parallel.cp", "parallel.cp_method", "parallel.pp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    if parallel.cp == 1 or parallel.cp_method.name == "ulysses":
        return
    span, label = subject.label("parallel.cp", f"by `{parallel.cp_method.name}`")
    yield error(
        CODE,
        f"deepspeed has no `{parallel.cp_method.name}`, it cuts sequences by `ulysses`",
        span,
        label,
        also=[subject.label("parallel.cp_method", "not among the target's methods")],
        fixes=fix.set_fields(subject, {"parallel.cp_method": "ulysses"}),
    )
