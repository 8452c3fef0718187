"""How long a pipeline takes: closed forms of the schedules' timelines.

With m microbatches, p ranks, v chunks a rank and t the time of one microbatch (forward F and
backward B) on the slowest rank, the step takes m·t plus what the pipeline waits to fill and drain:

- gpipe, 1F1B: (p−1)·t (arXiv:1811.06965, arXiv:2006.15704); with uneven stages the other stages'
  own times, Σ t_i − max t_i;
- interleaved: that over v (arXiv:2104.04473, section 2.2);
- zero_bubble (ZB-H1): (p−1)·(F + I − W), a third of 1F1B's where F = I = W (arXiv:2401.10241); no
  less than its longer half of F and I, which a W that takes more does not shorten;
- zbv: (p−1) chunks' longer of F and I, or twice what I takes beyond W, of half a stage, and (p−2)
  times what F takes beyond I, or W beyond both (arXiv:2405.15362 has the case F = I = W);
- dualpipe: (p/2 − 1)·(F&B + B − 3·W) (DeepSeek-V3, arXiv:2412.19437, table 2), a forward and a
  backward beside each other ending together after F&B = F + B; dualpipe_v: as of 2·p ranks, in half
  stages (github.com/deepseek-ai/DualPipe).

I and W are the halves of a backward, of inputs and of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from parlay.compiler.spec.schema import Setting

SPLITTING: Final = ("zero_bubble", "zbv", "dualpipe", "dualpipe_v")
"""Schedules whose share hangs on the halves."""


class Split(NamedTuple):
    """A microbatch on a rank: its forward, its gradients of inputs, and those of weights."""

    forward: float
    inputs: float
    weights: float


EVEN: Final = Split(1.0, 1.0, 1.0)


def waiting_share(schedule: Setting, pp: int, split: Split | None = None) -> float:
    """The share of `Σ t_i − max t_i`, the sum over ranks, that a schedule waits for.

    Where it hangs on how the backward is split and `split` is not given: the least there may be.
    """
    name = schedule.name
    if name == "interleaved":
        return 1.0 / float(schedule["chunks"])
    if name not in SPLITTING:
        return 1.0
    if split is None:
        return 0.0
    f, i, w = split
    longer = max(f, i)
    match name:
        case "zero_bubble":
            waits = f + i - min(f, i, w)
        case "zbv":
            behind = max(0.0, f - i, w - longer) * (pp - 2) / max(1, pp - 1)
            waits = (max(longer, 2 * (i - w)) + behind) / 2
        case "dualpipe_v":
            waits = max(0.0, f + 2 * i - w) / 2
        case _:
            waits = max(0.0, f + 2 * i - w) * max(0.0, pp / 2 - 1) / max(1, pp - 1)
    return waits / (f + i + w)


def step(
    schedule: Setting, times: Sequence[float], microbatches: int, split: Split = EVEN
) -> tuple[float, float]:
    """Seconds of the pipeline, and those of it that the slowest rank waits."""
    slowest = max(times)
    waits = waiting_share(schedule, len(times), split) * (sum(times) - slowest)
    return microbatches * slowest + waits, waits
