"""Dynamic loss scaling: small gradients of fp16 stay above its smallest number, 6e-8.

Losses are scaled up, gradients, once they are summed, down again. Where a norm is no finite number
some gradient was beyond fp16's largest, 65,504: the step is left out and the scale halved. After
`window` steps without that it is doubled (Micikevicius et al., arXiv:1710.03740, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from parlay.runtime.health import Named, must_be_finite
from parlay.runtime.plan import Plan
from torch import Tensor


class LossScale:
    """The factor, by the numbers of `plan.loss_scale`; always a power of two, so that scaling
    rounds nothing. Every rank has the same, since the norm is the same on every rank."""

    def __init__(self, plan: Plan) -> None:
        self.value = float(plan.loss_scale.initial)
        self.window, self.least = plan.loss_scale.window, plan.loss_scale.least
        self.good = 0
        """Steps since the scale has changed."""
        self.skipped = 0
        """Steps that were left out so far."""

    def fits(self, norm: Tensor, gradients: Named, *, step: int) -> bool:
        """Whether step `step` may be taken; sets the scale of the next one.

        Raises Unhealthy where the scale cannot fall any more.
        """
        if math.isfinite(float(norm)):
            self.good += 1
            if self.good == self.window:
                self.value, self.good = self.value * 2, 0
            return True
        if self.value <= self.least:
            must_be_finite(norm, gradients, step=step)
        self.value, self.good = self.value / 2, 0
        self.skipped += 1
        return False

    def state_dict(self) -> dict[str, float]:
        """What a save keeps of it."""
        return {"value": self.value, "good": self.good, "skipped": self.skipped}

    def load_state_dict(self, saved: Mapping[str, float]) -> None:
        """Goes on from a save."""
        self.value, self.good = float(saved["value"]), int(saved["good"])
        self.skipped = int(saved["skipped"])
