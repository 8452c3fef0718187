"""Optimizers over flat buffers: matrices decay; norms and biases do not.

`AdamW` is torch's, fused on GPUs, with everything in the dtype of the masters; `LeanAdamW` and
`SGD` compute in float32 at least, whatever they keep, a chunk at a time, so that no copy of a whole
buffer lies beside it.
"""

from __future__ import annotations

import torch
from parlay.runtime.masters import Held, Optimizer, Steer
from parlay.runtime.precision import wide
from parlay.runtime.shard import Owned
from torch import Tensor, nn

__all__ = ["SGD", "AdamW", "LeanAdamW", "Optimizer", "Steer"]


class AdamW(Optimizer):
    """AdamW as torch has it, its moments in the dtype of the masters."""

    def __init__(
        self,
        weights: Held,
        gradients: Owned,
        *,
        master: torch.dtype,
        states: torch.dtype,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        super().__init__(weights, gradients, master=master)
        if states != master:
            raise ValueError(f"moments in {states} beside masters in {master}: LeanAdamW has them")
        self.keep("exp_avg", states)
        self.keep("exp_avg_sq", states)
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for region, part in zip(self.regions, self.parts, strict=True):
            groups[region.decays].append(part)
        gpu = self.own[0].is_cuda
        self.adamw = torch.optim.AdamW(
            [
                {"params": parts, "weight_decay": weight_decay if decays else 0.0}
                for decays, parts in groups.items()
                if parts
            ],
            betas=betas,
            eps=eps,
            fused=gpu,
        )
        for part, state in zip(self.parts, self.state, strict=True):
            step = torch.zeros((), dtype=torch.float32, device=part.device if gpu else None)
            self.adamw.state[part] = {"step": step, **state}

    def _update(self, lr: float) -> None:
        for region, part in zip(self.regions, self.parts, strict=True):
            part.grad = self.gradients.of(region).to(part.dtype)
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()
        for part in self.parts:
            part.grad = None

    def _resumed(self) -> None:
        for part in self.parts:
            self.adamw.state[part]["step"].fill_(self.taken)


class LeanAdamW(Optimizer):
    """AdamW whose masters and moments have dtypes of their own.

    With `kahan` what rounding takes from an update is kept, in at least float32, and goes into the
    next one (Kahan, CACM 8(1), 1965): masters in 16 bits lose nothing then.
    """

    def __init__(
        self,
        weights: Held,
        gradients: Owned,
        *,
        master: torch.dtype,
        states: torch.dtype,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        kahan: bool = False,
        host: bool = False,
    ) -> None:
        super().__init__(weights, gradients, master=master, host=host)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.keep("exp_avg", states)
        self.keep("exp_avg_sq", states)
        if kahan:
            self.keep("compensation", wide(master))

    def _update(self, lr: float) -> None:
        one, two = self.betas
        first, second = 1 - one**self.taken, 1 - two**self.taken
        for decays, gradient, master, state in self.chunks():
            mean = state["exp_avg"].to(gradient.dtype).lerp(gradient, 1 - one)
            square = state["exp_avg_sq"].to(gradient.dtype) * two
            square.addcmul_(gradient, gradient, value=1 - two)
            state["exp_avg"].copy_(mean)
            state["exp_avg_sq"].copy_(square)
            weight = master.to(gradient.dtype)
            change = mean.mul_(-lr / first).div_(square.div_(second).sqrt_().add_(self.eps))
            if decays:
                change.sub_(weight, alpha=lr * self.weight_decay)
            add(change, weight, to=master, lost=state.get("compensation"))


class SGD(Optimizer):
    """Stochastic gradient descent: v = momentum · v + g + weight_decay · w, then w −= lr · v.

    Without `momentum` no v is kept.
    """

    def __init__(
        self,
        weights: Held,
        gradients: Owned,
        *,
        master: torch.dtype,
        states: torch.dtype,
        momentum: float,
        weight_decay: float,
        host: bool = False,
    ) -> None:
        super().__init__(weights, gradients, master=master, host=host)
        self.momentum, self.weight_decay = momentum, weight_decay
        if momentum:
            self.keep("momentum", states)

    def _update(self, lr: float) -> None:
        for decays, gradient, master, state in self.chunks():
            weight = master.to(gradient.dtype)
            change = gradient.add(weight, alpha=self.weight_decay if decays else 0.0)
            if "momentum" in state:
                change = state["momentum"].mul_(self.momentum).add_(change)
            add(change * -lr, weight, to=master)


def add(change: Tensor, weight: Tensor, *, to: Tensor, lost: Tensor | None = None) -> None:
    """`to`, of which `weight` is a copy in the dtype of `change`, becomes `weight + change`,
    rounded; `lost` is added first, and then holds what rounding took."""
    if lost is not None:
        change.add_(lost)
    now = (weight + change).to(to.dtype)
    if lost is not None:
        lost.copy_(change.sub_(now.to(change.dtype) - weight))
    to.copy_(now)
