"""The mean loss over samples that are held out of training."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from parlay.runtime.loss import IGNORED, Batch
from parlay.runtime.mesh import Axis
from parlay.runtime.plan import Plan
from torch import Tensor, nn


def due(plan: Plan, step: int) -> bool:
    """Whether samples held out are looked at after step `step`: with each save, and at the end."""
    every = plan.data.validation.every
    return step + 1 == plan.steps or (every is not None and (step + 1) % every == 0)


def mean(
    forward: Callable[[Batch], Tensor | None],
    batch: Batch,
    *,
    device: torch.device,
    axis: Axis | None = None,
) -> Tensor | None:
    """The mean loss over the labels that count, of `batch` and those of the other ranks of `axis`.

    `forward` gives the sum of the losses of `batch`, or None on ranks without the last stage, and
    so does this. Sends one all_reduce of two numbers over `axis`; no gradient is made.
    """
    with torch.no_grad():
        total = forward(batch)
    if total is None:
        return None
    counted = sum(int((labels != IGNORED).sum()) for _, labels in batch)
    both = torch.tensor([float(total), counted], dtype=torch.float64, device=device)
    if axis is not None:
        dist.all_reduce(both, group=axis.group)
    return both[0] / both[1].clamp(min=1)


def of_model(model: nn.Module, device: torch.device) -> Callable[[Batch], Tensor]:
    """The sum of the losses of a batch by a whole model."""

    def forward(batch: Batch) -> Tensor:
        moved = ((each.to(device, non_blocking=True) for each in pair) for pair in batch)
        return torch.stack([model(tokens, labels) for tokens, labels in moved]).sum()

    return forward
