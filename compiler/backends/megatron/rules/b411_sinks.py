"""Attention sinks under a ring.

What
    With `sinks = on` and cp above 1 the method is `ulysses`.
Why
    The learned logit of a head enters the denominator once. The kernels of the ring and of
    gathered keys have no place for it; an all-to-all gives each rank whole heads and the plain
    kernel.
Example
    model from "gpt-oss-20b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      cp = 2
      #    ^ B411
      ep = 8
      zero = 1
    }
Instead
    model from "gpt-oss-20b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      cp = 2
      cp_method = ulysses
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, August 2026, Transformer Engine issue 2541: no attention back end for softmax
    offsets under p2p.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B411"
TITLE = "attention sinks under a ring"
READS = ("model.sinks", "parallel.cp", "parallel.cp_method")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    method = subject.parallel.cp_method.name
    if not subject.model.sinks or subject.parallel.cp == 1 or method == "ulysses":
        return
    span, label = subject.label("parallel.cp", f"by `{method}`")
    yield error(
        CODE,
        f"attention sinks have no kernel under `{method}`",
        span,
        label,
        also=[subject.label("model.sinks", "a learned logit in each head's denominator")],
        fixes=fix.set_fields(subject, {"parallel.cp_method": "ulysses"}),
    )
