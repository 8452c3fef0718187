"""More tensor-parallel ranks than key/value heads.

What
    tp divides `kv_heads`.
Why
    torchtitan cuts the key and value projections by heads and does not copy them: a share of a
    head is no head.
Example
    model from "qwen3-30b-a3b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      #    ^ B601
      ep = 8
      zero = 3
    }
Instead
    model from "qwen3-30b-a3b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 4
      ep = 8
      zero = 3
    }
Source
    torchtitan, August 2026, models/*/parallelize.py, as in transformers issue 48307 for its own
    tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, suggest, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B601"
TITLE = "more tensor-parallel ranks than key/value heads"
READS = ("model.kv_heads", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    kv_heads, tp = subject.model.kv_heads, subject.parallel.tp
    # What no target can cut is told by the general rule.
    if subject.model.mla is not None or kv_heads % tp == 0 or tp % kv_heads:
        return
    span, label = subject.label("parallel.tp", f"{tp / kv_heads:g} ranks a key/value head")
    fitting = [size for size in words.divisors(kv_heads) if size < tp]
    near = suggest.layouts(subject, allowed={"parallel.tp": fitting})
    yield error(
        CODE,
        f"torchtitan does not copy the {words.counted(kv_heads, 'key/value head')} to tp = {tp}",
        span,
        label,
        also=[subject.label("model.kv_heads", words.counted(kv_heads, "key/value head"))],
        help=[*near.help, "the target megatron copies them"],
        fixes=near.fixes,
    )
