"""etp does not divide the inner width of an expert.

What
    etp divides `experts.ffn`.
Why
    An expert's matrices are cut over etp as the MLP's are over tp.
Example
    model from "qwen3-30b-a3b" { experts { ffn = 1_540 } }
    cluster { nodes = 4, node from "gb200-nvl72" }
    parallel {
      etp = 8
      #     ^ L218
      ep = 2
      tp = 4
      zero = 1
    }
Instead
    model from "qwen3-30b-a3b" { experts { ffn = 1_536 } }
    cluster { nodes = 4, node from "gb200-nvl72" }
    parallel {
      etp = 8
      tp = 4
      zero = 1
    }
Source
    Megatron-Core, tensor_parallel.layers, over the expert tensor-parallel group.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L218"
TITLE = "etp does not divide the inner width of an expert"
READS = ("model.experts.ffn", "parallel.etp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    experts, etp = subject.model.experts, subject.parallel.etp
    assert experts is not None
    if experts.ffn % etp == 0:
        return
    span, label = subject.label(
        "parallel.etp", "each rank of etp needs a whole number of an expert's columns"
    )
    near = suggest.choices(subject, "parallel.etp", words.divisors(experts.ffn), wanted=etp)
    yield error(
        CODE,
        f"etp = {etp} does not divide experts.ffn = {experts.ffn}",
        span,
        label,
        also=[subject.label("model.experts.ffn", f"{experts.ffn} columns of an expert")],
        notes=[words.leaves(experts.ffn, etp)],
        help=near.help,
        fixes=near.fixes,
    )
