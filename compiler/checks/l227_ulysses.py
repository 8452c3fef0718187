"""The heads do not divide over the ranks of Ulysses.

What
    Under `ulysses`, cp · tp divides `heads`, and divides `kv_heads` or is a multiple of it; under
    `ulysses_ring`, inner · tp.
Why
    The all-to-all gives each rank the whole sequence of some of its TP rank's heads, so there have
    to be whole heads for every rank. Too few key/value heads are copied.
Example
    model from "llama3.2-1b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      tp = 1
      cp = 64
      #    ^^ L227
      cp_method = ulysses
    }
Instead
    model from "llama3.2-1b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      tp = 1
      cp = 32
      cp_method = ulysses
    }
Source
    DeepSpeed-Ulysses, arXiv:2309.14509, section 3.2; DeepSpeed, sequence.layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L227"
TITLE = "the heads do not divide over the ranks of Ulysses"
READS = (
    "model.heads",
    "model.kv_heads",
    "parallel.tp",
    "parallel.cp",
    "parallel.cp_method",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    model, tp = subject.model, subject.parallel.tp
    inner = _inner(subject)
    if inner is None or model.heads % tp:
        return
    ranks = inner * tp
    if model.heads % ranks:
        size, number, one = "model.heads", model.heads, "query head"
    elif model.mla is None and model.kv_heads % ranks and ranks % model.kv_heads:
        size, number, one = "model.kv_heads", model.kv_heads, "key/value head"
    else:
        return
    span, label = subject.label("parallel.cp", "each rank needs whole heads")
    fitting = words.divisors(model.heads // tp)
    ulysses = subject.parallel.cp_method.name == "ulysses"
    near = suggest.choices(subject, "parallel.cp", fitting if ulysses else (), wanted=inner)
    name = "cp" if ulysses else "inner"
    yield error(
        CODE,
        f"{words.product((name, 'tp'), (inner, tp))} does not divide the "
        f"{words.counted(number, one)}",
        span,
        label,
        also=[
            subject.label(size, words.counted(number, one)),
            subject.label("parallel.cp_method", "deals heads out over the ranks"),
        ],
        notes=[words.leaves(number, ranks)],
        help=near.help,
        fixes=near.fixes,
    )


def _inner(subject: Subject) -> int | None:
    """How many ranks deal their heads out among each other; None for methods that do not."""
    method = subject.parallel.cp_method
    if subject.parallel.cp == 1:
        return None
    if method.name == "ulysses":
        return subject.parallel.cp
    inner: int | None = method.get("inner") if method.name == "ulysses_ring" else None
    return inner
