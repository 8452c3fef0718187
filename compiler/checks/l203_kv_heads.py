"""tp does not fit the key/value heads.

What
    tp divides `kv_heads`, or is a multiple of it.
Why
    Each TP rank computes whole query heads and needs the key/value heads that they share. With
    fewer key/value heads than ranks each head stands on several ranks, which costs memory and
    repeats their projection, but is right: that is a note. Anything between is no cut at all.
Example
    model from "llama3-8b" { heads = 48, kv_heads = 6, head_dim = 128 }
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
      #    ^ L203
    }
Instead
    model from "llama3-8b" { heads = 48, kv_heads = 6, head_dim = 128 }
    cluster { node from "dgx-h100" }
    parallel { tp = 2 }
Source
    Megatron-Core, TransformerConfig: num_query_groups must be a multiple or divisor of
    tensor_model_parallel_size. torchtitan, nanotron and picotron want a divisor.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.divide import indivisible
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "L203"
TITLE = "tp does not fit the key/value heads"
READS = ("model.kv_heads", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    kv_heads, tp = subject.model.kv_heads, subject.parallel.tp
    # Without grouped-query attention the query heads already tell it; MLA has no such heads.
    if subject.model.mla is not None or kv_heads == subject.model.heads or kv_heads % tp == 0:
        return
    if tp % kv_heads == 0:
        yield _replicated(subject, kv_heads, tp)
        return
    yield indivisible(
        subject,
        CODE,
        size="model.kv_heads",
        degree="parallel.tp",
        needs="each TP rank needs a whole number of key/value heads",
        one="key/value head",
    )


def _replicated(subject: Subject, kv_heads: int, tp: int) -> Diagnostic:
    span, label = subject.label("parallel.tp", f"{tp} TP ranks")
    return note(
        CODE,
        f"each key/value head stands on {tp // kv_heads} TP ranks",
        span,
        label,
        also=[subject.label("model.kv_heads", words.counted(kv_heads, "key/value head"))],
        notes=[f"tp / kv_heads = {tp} / {kv_heads} = {tp // kv_heads}"],
    )
