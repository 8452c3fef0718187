"""`allow` names a rule that cannot be allowed.

What
    Only rules about what is slow may be allowed, not those about what cannot run.
Why
    An indivisible layout stays indivisible, whatever the reason. What may be allowed says so in its
    help.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    allow L203 "the heads are copied"
    #     ^^^^ T291
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
Source
    The language reference, `allow`.
"""

from __future__ import annotations

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic

CODE = "T291"
TITLE = "`allow` names a rule that cannot be allowed"
READS: tuple[str, ...] = ()
ALLOWED = False


def check(subject: Subject) -> tuple[Diagnostic, ...]:
    """Nothing: `allow.settle` tells it, once for the file."""
    return ()
