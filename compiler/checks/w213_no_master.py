"""Steps of the optimizer are rounded away for want of a master copy.

What
    A warning where 16-bit weights are their own masters (`master = none`, without `kahan`), and a
    step of Adam is lost on every second weight or more; a note where it is lost on the gains of
    norms alone, which start at 1.
Why
    Adam moves a weight by about the learning rate. A weight of b significant bits moves only if
    that is at least 2^-(b+1) of its size, 1/512 in bf16; below, the sum rounds back. Weights drawn
    wide and the gains of norms then stay where they began, the loss falls slowly, and nothing says
    why. A master copy or compensated sums (`kahan`) keep what is rounded.
Example
    model from "llama2-7b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
      gradients = bf16
      master = none
      #        ^^^^ W213
      optimizer = adamw(lr = 1e-6, states = bf16)
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
      gradients = bf16
      master = none
      optimizer = adamw(lr = 1e-6, states = bf16, kahan = on)
    }
Source
    accelerate issue 2624, torchtune issue 2254, speculators issue 765; arXiv:2010.06192 (rounding
    of weights' updates, and Kahan sums against it).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import erfc, sqrt
from typing import Final

from parlay.compiler.checks import budget, fix, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, Fix, note, warning

CODE = "W213"
TITLE = "steps of the optimizer are rounded away for want of a master copy"
READS = ("train.precision", "train.master", "train.optimizer", "model.init_std")
ALLOWED = False

BITS: Final = {"fp16": 11}
"""Significant bits of weights by precision, where they are not those of bf16."""
BF16: Final = 8
MOST: Final = 0.5
"""The share of weights from which on it is a warning."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    train, std = subject.train, subject.model.init_std
    optimizer = train.optimizer
    if train.precision == "fp32" or train.master != "none" or train.lora is not None:
        return
    if optimizer.name != "adamw" or optimizer.get("kahan") or not optimizer.get("lr"):
        return
    rate, bits = float(optimizer.get("lr")), BITS.get(train.precision, BF16)
    largest = rate * 2 ** (bits + 1)
    share = erfc(largest / std / sqrt(2)) if std else 0.0
    if largest >= 1:
        return
    help, fixes = _wider(subject)
    name, step = ("fp16" if bits != BF16 else "bf16"), words.real(rate)
    where = f"{words.percent(share)} of the weights" if share >= MOST else "the gains of norms"
    yield (warning if share >= MOST else note)(
        CODE,
        f"{name} rounds a step of {step} away on {where}",
        *subject.label("train.master", "weights are their own masters"),
        also=[subject.label("train.optimizer.lr", f"moves no weight above {largest:.2g}")],
        notes=[
            f"{bits} significant bits: a step below 1/{2 ** (bits + 1)} of a weight is lost; "
            f"{step} · {2 ** (bits + 1)} = {largest:.2g}",
            f"weights are drawn with a deviation of {std:g}, and the gains of norms start at 1",
        ],
        help=help,
        fixes=fixes,
    )


def _wider(subject: Subject) -> tuple[list[str], tuple[Fix, ...]]:
    """What keeps the steps, where it fits."""
    if subject.searching:
        return [], ()
    help: list[str] = []
    fixes: tuple[Fix, ...] = ()
    for path, value, text, what in (
        ("train.optimizer.kahan", True, "on", "keeps what rounding takes from a step"),
        ("train.master", "fp32", "fp32", "keeps 4 bytes a parameter to add steps to"),
    ):
        other = subject.with_values({path: value})
        if budget.fits(other):
            help.append(f"{path.rpartition('.')[2]} = {text} {what}{budget.figures(other)}")
            fixes += fix.set_fields(subject, {path: text})
    return help or ["kahan = on keeps what rounding takes from a step"], fixes
