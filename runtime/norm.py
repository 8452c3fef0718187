"""RMS norms of features that are cut over one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.mesh import Axis
from parlay.runtime.precision import wide
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def across(xs: Sequence[Tensor], norms: Sequence[nn.RMSNorm], *, axis: Axis) -> tuple[Tensor, ...]:
    """Each x [b, s, f/n] over the root of its mean square over all f features, times its weight.

    A rank holds as many features of each weight. Features that several ranks hold alike count as
    often as they are held, which leaves the mean as it is.

    Forward: all_reduce of the sums of squares [len(xs), b, s], at least in float32.
    Backward: all_reduce of as many sums.
    """
    weights = [norm.weight for norm in norms]
    epsilons = [norm.eps or 0.0 for norm in norms]
    return _Across.apply(axis, epsilons, *xs, *weights)


class _Across(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, axis: Axis, epsilons: list[float], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        xs, weights = tensors[: len(epsilons)], tensors[len(epsilons) :]
        sums = torch.stack([_wide(x).square().sum(-1) for x in xs])
        dist.all_reduce(sums, group=axis.group)
        scales = [
            (total / (x.shape[-1] * axis.size) + eps).rsqrt().unsqueeze(-1)
            for total, x, eps in zip(sums, xs, epsilons, strict=True)
        ]
        ctx.axis, ctx.count = axis, len(xs)
        ctx.save_for_backward(*tensors, *scales)
        return tuple(
            (_wide(x) * scale * weight).to(x.dtype)
            for x, scale, weight in zip(xs, scales, weights, strict=True)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        n, saved = ctx.count, ctx.saved_tensors
        xs, weights, scales = saved[:n], saved[n : 2 * n], saved[2 * n :]
        inner = [
            _wide(gradient) * weight for gradient, weight in zip(gradients, weights, strict=True)
        ]
        sums = torch.stack([(one * x).sum(-1) for one, x in zip(inner, xs, strict=True)])
        sent = dist.all_reduce(sums, group=ctx.axis.group, async_op=True)
        of_weights = [
            (gradient * x * scale).sum((0, 1)).to(weight.dtype)
            for gradient, x, scale, weight in zip(gradients, xs, scales, weights, strict=True)
        ]
        sent.wait()
        of_xs = [
            (scale * one - x * scale**3 * total.unsqueeze(-1) / (x.shape[-1] * ctx.axis.size)).to(
                x.dtype
            )
            for scale, one, x, total in zip(scales, inner, xs, sums, strict=True)
        ]
        return None, None, *of_xs, *of_weights


def _wide(x: Tensor) -> Tensor:
    return x.to(wide(x.dtype))
