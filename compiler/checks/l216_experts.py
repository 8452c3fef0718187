"""ep does not divide the experts.

What
    ep divides `count`.
Why
    Each EP rank holds count / ep whole experts of a layer.
Example
    model from "qwen3-30b-a3b"
    cluster { nodes = 6, node from "gb200-nvl72" }
    parallel {
      ep = 24
      #    ^^ L216
      zero = 1
    }
Instead
    model from "qwen3-30b-a3b"
    cluster { nodes = 6, node from "gb200-nvl72" }
    parallel {
      ep = 8
      zero = 1
    }
Source
    Megatron-LM, arguments.validate_args: num_experts is a multiple of expert-model-parallel-size.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L216"
TITLE = "ep does not divide the experts"
READS = ("model.experts.count", "parallel.ep")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    experts, ep = subject.model.experts, subject.parallel.ep
    assert experts is not None
    if experts.count % ep == 0:
        return
    span, label = subject.label("parallel.ep", "each EP rank needs a whole number of experts")
    near = suggest.choices(subject, "parallel.ep", words.divisors(experts.count), wanted=ep)
    yield error(
        CODE,
        f"ep = {ep} does not divide the {words.counted(experts.count, 'expert')}",
        span,
        label,
        also=[subject.label("model.experts.count", words.counted(experts.count, "expert"))],
        notes=[words.leaves(experts.count, ep)],
        help=near.help,
        fixes=near.fixes,
    )
