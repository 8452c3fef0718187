"""A method of context parallelism that the target does not have.

What
    With cp above 1 `cp_method` is `ring` or `allgather`.
Why
    torchtitan rotates keys and values, by all-gather or all-to-all; it deals no heads out.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 4
      cp_method = ulysses
      #           ^^^^^^^ B604
      zero = 3
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      cp = 4
      cp_method = allgather
      zero = 3
    }
Source
    torchtitan, August 2026, distributed/context_parallel.py: context_parallel_rotate_method.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix, suggest
from parlay.compiler.spec.schema import Setting
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B604"
TITLE = "a method of context parallelism that the target does not have"
READS = ("parallel.cp", "parallel.cp_method")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    method = subject.parallel.cp_method.name
    if subject.parallel.cp == 1 or method in ("ring", "allgather"):
        return
    path = "parallel.cp_method"
    holds = suggest.holds(subject, {path: Setting("allgather")})
    yield error(
        CODE,
        f"torchtitan has no `{method}`",
        *subject.label(path, "not among the target's methods"),
        help=["it has `ring` and `allgather`"],
        fixes=fix.set_fields(subject, {path: "allgather"}) if holds else (),
    )
