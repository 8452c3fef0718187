"""The learning rate of a step. Pure Python."""

from __future__ import annotations

from math import cos, pi


def cosine(step: int, *, lr: float, warmup: int, min_lr: float, steps: int) -> float:
    """Up to `lr` in a line over `warmup` steps, then down to `min_lr` along half a cosine.

    Steps count from 0. Step `warmup - 1` is the first at `lr`, and a step `steps` would be at
    `min_lr`, where the rate stays.
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return min_lr + (lr - min_lr) * (1.0 + cos(pi * done)) / 2.0
