"""How long a pipeline takes: closed forms of the schedules' timelines.

With m microbatches, p ranks, v chunks a rank and t the time of one microbatch (forward F and
backward B) on the slowest rank, the step takes m·t plus what the pipeline waits to fill and drain:

- gpipe, 1F1B: (p−1)·t (arXiv:1811.06965, arXiv:2006.15704); with uneven stages the other stages'
  own times, Σ t_i − max t_i;
- interleaved: that over v (arXiv:2104.04473, section 2.2);
- zero_bubble (ZB-H1): (p−1)·(F + I − W), a third of 1F1B's where F = I = W (arXiv:2401.10241);
- zbv: (p−1) chunks' forwards, of half a stage, where F = I = W (arXiv:2405.15362);
- dualpipe: (p/2 − 1)·(F&B + B − 3·W) (DeepSeek-V3, arXiv:2412.19437, table 2), a forward and a
  backward beside each other ending together after F&B = F + B; dualpipe_v: as of 2·p ranks, in half
  stages (github.com/deepseek-ai/DualPipe).
"""

from __future__ import annotations

from collections.abc import Sequence

from parlay.compiler.spec.schema import Setting


def waiting_share(schedule: Setting, pp: int) -> float:
    """The share of `Σ t_i − max t_i`, the sum over ranks, that a schedule waits for."""
    match schedule.name:
        case "interleaved":
            return 1.0 / float(schedule["chunks"])
        case "zero_bubble":
            return 1.0 / 3.0
        case "zbv":
            return 1.0 / 6.0
        case "dualpipe_v":
            return 1.0 / 3.0
        case "dualpipe":
            return 2.0 * max(0.0, pp / 2 - 1) / (3.0 * max(1, pp - 1))
    return 1.0


def step(schedule: Setting, times: Sequence[float], microbatches: int) -> tuple[float, float]:
    """Seconds of the pipeline, and those of it that the slowest rank waits."""
    slowest = max(times)
    waits = waiting_share(schedule, len(times)) * (sum(times) - slowest)
    return microbatches * slowest + waits, waits
