"""Nothing of a GPU's memory may be planned.

What
    `budget.memory` of the GPU's memory is more than `budget.reserve`.
Why
    The reserve comes out of the share that may be planned. Where it takes all of it, no layout
    fits, and none is to blame.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    budget {
      memory = 10%
      reserve = 10GB
      #         ^^^^ M205
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    budget {
      memory = 90%
      reserve = 10GB
    }
Source
    The definition of `budget`.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.budget import budget
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "M205"
TITLE = "nothing of a GPU's memory may be planned"
READS = ("cluster.node.gpu.memory", "budget.memory", "budget.reserve")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if budget(subject) > 0:
        return
    allowed, memory = subject.spec.budget, subject.cluster.node.gpu.memory_bytes
    share = allowed.memory * float(memory)
    reserve = allowed.reserve_bytes
    path = "budget.reserve" if reserve else "budget.memory"
    span, label = subject.label(path, f"{words.memory(reserve)} in reserve")
    yield error(
        CODE,
        f"the reserve of {words.memory(reserve)} leaves nothing of {words.memory(share)}",
        span,
        label if reserve else "no share of the memory",
        notes=[
            f"{words.percent(allowed.memory)} of {words.memory(memory)} is {words.memory(share)}"
        ],
    )
