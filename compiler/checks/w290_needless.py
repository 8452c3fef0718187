"""A needless `allow`.

What
    An `allow` stands only where its rule finds an error.
Why
    Left behind after a change, it would silence the next one unseen.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    allow N201 "measured: the fabric is fast enough"
    #     ^^^^ W290
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

CODE = "W290"
TITLE = "a needless `allow`"
READS: tuple[str, ...] = ()
ALLOWED = False


def check(subject: Subject) -> tuple[Diagnostic, ...]:
    """Nothing: `allow.settle` tells it, once for the file."""
    return ()
