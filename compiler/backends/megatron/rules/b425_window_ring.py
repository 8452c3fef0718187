"""A sliding window under a ring.

What
    With `window` and cp above 1 the method is `allgather` or `ulysses`.
Why
    Transformer Engine's ring passes keys and values from rank to rank and knows the causal mask
    alone. It refuses a window; gathered keys and an all-to-all let the plain kernel apply it.
Example
    model from "mistral-7b"
    cluster { node from "dgx-h100" }
    parallel {
      cp = 2
      #    ^ B425
      zero = 1
    }
Instead
    model from "mistral-7b"
    cluster { node from "dgx-h100" }
    parallel {
      cp = 2
      cp_method = allgather
      zero = 1
    }
Source
    Megatron-LM, August 2026, issues 1160 and 2222; Transformer Engine, attn_forward_func_with_cp: a
    window needs all_gather or a2a.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix, suggest
from parlay.compiler.spec.schema import Setting
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B425"
TITLE = "a sliding window under a ring"
READS = ("model.window", "parallel.cp", "parallel.cp_method")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    method = parallel.cp_method.name
    if subject.model.window is None or parallel.cp == 1 or method in ("allgather", "ulysses"):
        return
    # A window with a learned sink needs whole heads, which is told by that rule.
    if subject.model.sinks:
        return
    path = "parallel.cp_method"
    span, label = subject.label("parallel.cp", f"by `{method}`")
    yield error(
        CODE,
        f"a sliding window has no kernel under `{method}`",
        span,
        label,
        also=[subject.label("model.window", "what a layer sees of the sequence")],
        help=["`allgather` and `ulysses` have one"],
        fixes=fix.set_fields(subject, {path: "allgather"})
        if suggest.holds(subject, {path: Setting("allgather")})
        else (),
    )
