"""More tensor-parallel ranks than key/value heads.

What
    A warning where tp is above the number of key/value heads.
Why
    AutoTP deals whole key/value heads and copies none. Ranks beyond their number hold no part of
    the attention: the result is right, and the first ranks do all of that work.
Example
    model from "yi-6b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      #    ^ B512
      zero = 1
    }
Instead
    model from "yi-6b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      zero = 1
    }
Source
    DeepSpeed, August 2026, runtime/engine.py: _apply_autotp_partitioning warns of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, suggest, words
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B512"
TITLE = "more tensor-parallel ranks than key/value heads"
READS = ("model.kv_heads", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    tp, heads = subject.parallel.tp, subject.model.kv_heads
    # What no target can cut is told by the general rule.
    if subject.model.mla is not None or tp <= heads or tp % heads:
        return
    span, label = subject.label("parallel.tp", f"{tp - heads} of them without attention")
    near = suggest.layouts(subject, allowed={"parallel.tp": words.divisors(heads)})
    yield warning(
        CODE,
        f"{words.counted(heads, 'key/value head')} on {tp} ranks: AutoTP copies none",
        span,
        label,
        also=[subject.label("model.kv_heads", words.counted(heads, "key/value head"))],
        help=near.help,
        fixes=near.fixes,
    )
