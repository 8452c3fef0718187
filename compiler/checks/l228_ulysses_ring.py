"""The two parts of `ulysses_ring` do not make cp.

What
    inner · outer = cp.
Why
    The ranks of a context group form a grid: an all-to-all over the inner ones, a ring over the
    outer ones. A framework that is told no inner size has run without context communication at
    all, with an impossible speed and a wrong loss.
Example
    model from "llama3.2-1b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 16
      cp_method = ulysses_ring(inner = 4, outer = 2)
      #           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ L228
    }
Instead
    model from "llama3.2-1b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 16
      cp_method = ulysses_ring(inner = 8, outer = 2)
    }
Source
    Megatron-Core: the product of hierarchical_context_parallel_sizes is the context-parallel size.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, Fix, error

CODE = "L228"
TITLE = "the two parts of `ulysses_ring` do not make cp"
READS = ("parallel.cp", "parallel.cp_method")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    cp, method = subject.parallel.cp, subject.parallel.cp_method
    if method.name != "ulysses_ring":
        return
    inner, outer = method["inner"], method["outer"]
    if inner * outer == cp:
        return
    span, label = subject.label("parallel.cp_method", words.counted(inner * outer, "rank"))
    fixes: tuple[Fix, ...] = ()
    if cp % inner == 0:
        text = f"ulysses_ring(inner = {inner}, outer = {cp // inner})"
        fixes = fix.set_fields(subject, {"parallel.cp_method": text}, f"outer = {cp // inner}")
    yield error(
        CODE,
        f"{words.product(('inner', 'outer'), (inner, outer))} is not cp = {cp}",
        span,
        label,
        also=[subject.label("parallel.cp", f"{cp} ranks share each sequence")],
        fixes=fixes,
    )
