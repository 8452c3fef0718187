"""A moment in bf16 that its own decay cannot lower.

What
    A warning where `states = bf16` and a beta of Adam is so near to 1 that 1 - beta is at most
    2^-9.
Why
    A moment is multiplied by its beta each step. bf16 keeps 8 significant bits: what is lowered by
    less than 1/512 rounds back to what it was. The moment rises with large gradients and never
    falls again, so steps stay as small as the largest gradient made them.
Example
    model from "llama2-7b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
      optimizer = adamw(lr = 1e-4, betas = [0.9, 0.999], states = bf16)
      #                                    ^^^^^^^^^^^^ W214
    }
Instead
    model from "llama2-7b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
      optimizer = adamw(lr = 1e-4, betas = [0.9, 0.95], states = bf16)
    }
Source
    Rounding to nearest at 8 bits; arXiv:2412.19437, section 3.3.3, which keeps moments in bf16, has
    0.95. torchtune issue 2254.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import budget, fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W214"
TITLE = "a moment in bf16 that its own decay cannot lower"
READS = ("train.optimizer",)
ALLOWED = False

LOST: Final = 2**-9
"""The share of a bf16 number by which it may be lowered and still round back, whatever it is."""
LOWEST: Final = 0.99
"""A beta to go down to where fp32 moments do not fit."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    optimizer = subject.train.optimizer
    betas = optimizer.get("betas") or ()
    # Betas that are no decays have a rule of their own.
    if optimizer.get("states") != "bf16" or len(betas) != 2 or not all(0 <= b < 1 for b in betas):
        return
    frozen = [float(beta) for beta in betas if 1 - float(beta) <= LOST]
    if not frozen:
        return
    wide = {"train.optimizer.states": "fp32"}
    fits = not subject.searching and budget.fits(subject.with_values(wide))
    lower = f"[{', '.join(f'{min(float(beta), LOWEST):g}' for beta in betas)}]"
    beta = max(frozen)
    yield warning(
        CODE,
        f"a moment in bf16 does not fall at beta = {beta:g}",
        *subject.label("train.optimizer.betas", f"{words.listed([f'{b:g}' for b in frozen])}"),
        also=[subject.label("train.optimizer.states", "8 significant bits")],
        notes=[f"1 - {beta:g} = {1 - beta:.2g} of the moment a step, and 1/512 rounds back"],
        fixes=[
            *(fix.set_fields(subject, wide) if fits else ()),
            *fix.set_fields(subject, {"train.optimizer.betas": lower}),
        ],
    )
