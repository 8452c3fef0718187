"""The key/value heads do not divide the query heads.

What
    `kv_heads` divides `heads`.
Why
    In grouped-query attention each key/value head serves the same number of query heads.
Example
    model from "llama3.2-1b" {
      kv_heads = 5
      #          ^ L229
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 1 }
Instead
    model from "llama3.2-1b" {
      kv_heads = 4
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 1 }
Source
    arXiv:2305.13245, section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L229"
TITLE = "the key/value heads do not divide the query heads"
READS = ("model.heads", "model.kv_heads")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    heads, kv_heads = subject.model.heads, subject.model.kv_heads
    if heads % kv_heads == 0:
        return
    span, label = subject.label("model.kv_heads", "each serves the same number of query heads")
    fitting = words.divisors(heads)
    near = suggest.choices(subject, "model.kv_heads", fitting, wanted=kv_heads, most=2)
    yield error(
        CODE,
        f"kv_heads = {kv_heads} does not divide heads = {heads}",
        span,
        label,
        also=[subject.label("model.heads", words.counted(heads, "query head"))],
        notes=[words.leaves(heads, kv_heads)],
        help=near.help,
        fixes=near.fixes,
    )
