"""`allow` names no rule.

What
    The code after `allow` is that of a rule which permits it.
Why
    A slip in the code would leave the rule's error standing, and the reason unread.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    allow N999 "measured: the fabric is fast enough"
    #     ^^^^ T290
Instead
    model from "llama2-7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel { tp = 8 }
Source
    The language reference, `allow`.
"""

from __future__ import annotations

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic

CODE = "T290"
TITLE = "`allow` names no rule"
READS: tuple[str, ...] = ()
ALLOWED = False


def check(subject: Subject) -> tuple[Diagnostic, ...]:
    """Nothing: `allow.settle` tells it, once for the file."""
    return ()
