"""The learning rate of a step. Pure Python.

Steps count from 0. Every schedule goes up to `lr` in a line over `warmup` steps, of which the last
one is the first at `lr`; where it goes down, a step `steps`, the first that is not taken, would be
at `min_lr`, and there the rate stays.
"""

from __future__ import annotations

from math import cos, pi


def constant(step: int, *, lr: float, warmup: int, steps: int) -> float:
    """`lr` from the warm-up on."""
    return _warm(step, lr=lr, warmup=warmup)


def cosine(step: int, *, lr: float, warmup: int, min_lr: float, steps: int) -> float:
    """Down to `min_lr` along half a cosine."""
    if step < warmup:
        return _warm(step, lr=lr, warmup=warmup)
    return min_lr + (lr - min_lr) * (1.0 + cos(pi * _done(step, warmup, steps))) / 2.0


def linear(step: int, *, lr: float, warmup: int, min_lr: float, steps: int) -> float:
    """Down to `min_lr` in a line."""
    if step < warmup:
        return _warm(step, lr=lr, warmup=warmup)
    return lr + (min_lr - lr) * _done(step, warmup, steps)


def wsd(step: int, *, lr: float, warmup: int, decay: int, min_lr: float, steps: int) -> float:
    """At `lr` until `decay` steps are left, then down to `min_lr` in a line."""
    stable = max(warmup, steps - decay)
    if step < stable:
        return _warm(step, lr=lr, warmup=warmup)
    return lr + (min_lr - lr) * _done(step, stable, steps)


def _warm(step: int, *, lr: float, warmup: int) -> float:
    return lr * (step + 1) / warmup if step < warmup else lr


def _done(step: int, first: int, steps: int) -> float:
    """The share of the steps from `first` to `steps` that is done."""
    return min(1.0, max(0, step - first) / max(1, steps - first))
