"""The betas of Adam are no two decays.

What
    `betas` has two entries, each at least 0 and below 1.
Why
    They are the shares of the two moments that are kept from step to step. At 1 a moment never
    takes anything in, and the correction of the first steps divides by zero.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      optimizer = adamw(lr = 3e-4, betas = [0.9, 1])
      #                                    ^^^^^^^^ T203
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      optimizer = adamw(lr = 3e-4, betas = [0.9, 0.95])
    }
Source
    PyTorch, torch.optim.AdamW: the checks of its constructor.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "T203"
TITLE = "the betas of Adam are no two decays"
READS = ("train.optimizer",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    betas = subject.train.optimizer.get("betas")
    if betas is None or (len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
        return
    span, label = subject.label("train.optimizer.betas", "of the first and of the second moment")
    if len(betas) != 2:
        message = f"Adam has two betas, not {len(betas) or 'none'}"
    else:
        beyond = [f"{beta:g}" for beta in betas if not 0 <= beta < 1]
        message = f"a beta of {words.listed(beyond)} is not from 0 to below 1"
    yield error(
        CODE,
        message,
        span,
        label,
        fixes=fix.set_fields(subject, {"train.optimizer.betas": "[0.9, 0.95]"}),
    )
