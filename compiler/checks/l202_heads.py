"""tp does not divide the query heads.

What
    tp divides `heads`.
Why
    Attention is cut by heads: each TP rank computes whole heads, so that no score has to be summed
    over ranks. A head that two ranks share has no place.
Example
    model from "llama3-8b" { heads = 52, kv_heads = 52, head_dim = 128 }
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
      #    ^ L202
    }
Instead
    model from "llama3-8b" { heads = 52, kv_heads = 52, head_dim = 128 }
    cluster { node from "dgx-h100" }
    parallel { tp = 4 }
Source
    Megatron-Core, TransformerConfig: num_attention_heads must be divisible by
    tensor_model_parallel_size (arXiv:1909.08053, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks.divide import indivisible
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic

CODE = "L202"
TITLE = "tp does not divide the query heads"
READS = ("model.heads", "parallel.tp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.model.heads % subject.parallel.tp:
        yield indivisible(
            subject,
            CODE,
            size="model.heads",
            degree="parallel.tp",
            needs="each TP rank needs a whole number of query heads",
            one="query head",
        )
