"""Multi-head latent attention over one axis (arXiv:2405.04434, section 2.1): what a few features
that every rank makes become on the ranks that hold the heads.

Latents [b, s, r] and the features of a position [b, s, p] come from weights that are whole on every
rank, the heads from linears that are cut by outputs. All of them travel in one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parlay.runtime.mesh import Axis
from parlay.runtime.sequence import gathered, joined, start_gather, start_scatter
from torch import Tensor
from torch.autograd.function import once_differentiable


def expand(
    latents: Sequence[Tensor], weights: Sequence[Tensor], position: Tensor, *, axis: Axis
) -> tuple[Tensor, ...]:
    """`position`, then `latent @ weight.T` for each; a rank holds some rows of each weight.

    Forward: latents [b, s, r] and weights [o/n, r] give [b, s, o/n]; nothing is sent.
    Backward: all_reduce of the gradients of latents and position [b, s, r + … + p], so that what
    made them has the same whole gradients on every rank.
    """
    return _Expand.apply(axis, len(latents), position, *latents, *weights)


def gather_expand(
    latents: Sequence[Tensor], weights: Sequence[Tensor], position: Tensor, *, axis: Axis
) -> tuple[Tensor, ...]:
    """`expand` of a sequence that is cut over the axis.

    Forward: all_gather of latents [b, s/n, r] and position [b, s/n, p] together, which gives
    [b, s, p] and [b, s, o/n]; only the pieces are kept.
    Backward: all_gather of the latents again, reduce_scatter of the gradients of all.
    """
    return _GatherExpand.apply(axis, len(latents), position, *latents, *weights)


class _Expand(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, axis: Axis, count: int, position: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.axis, ctx.count = axis, count
        ctx.save_for_backward(*tensors)
        return position.view_as(position), *_heads(tensors[:count], tensors[count:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_position: Tensor, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        latents, weights = saved[: ctx.count], saved[ctx.count :]
        found = _of_inputs(of_position, gradients, weights)
        sent = dist.all_reduce(found, group=ctx.axis.group, async_op=True)
        of_weights = _of_weights(ctx, gradients, latents)
        sent.wait()
        return None, None, *_split(found, of_position, latents), *of_weights


class _GatherExpand(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, axis: Axis, count: int, position: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.axis, ctx.count = axis, count
        ctx.save_for_backward(*tensors)
        latents, weights = tensors[:count], tensors[count:]
        whole = gathered(torch.cat([position, *latents], dim=-1), axis)
        parts = _split(whole, position, latents)
        # A piece of one buffer would keep all of it.
        return parts[0].contiguous(), *_heads(parts[1:], weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_position: Tensor, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        latents, weights = saved[: ctx.count], saved[ctx.count :]
        pieces, arriving = start_gather(torch.cat(latents, dim=-1), ctx.axis)
        found = _of_inputs(of_position, gradients, weights)
        found, scattered = start_scatter(found, ctx.axis)
        arriving.wait()
        whole = joined(pieces).split([latent.shape[-1] for latent in latents], dim=-1)
        of_weights = _of_weights(ctx, gradients, whole)
        scattered.wait()
        return None, None, *_split(found, of_position, latents), *of_weights


def _heads(latents: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """[b, s, o/n] each."""
    return [F.linear(x, weight) for x, weight in zip(latents, weights, strict=True)]


def _of_inputs(
    of_position: Tensor, gradients: Sequence[Tensor], weights: Sequence[Tensor]
) -> Tensor:
    """[b, s, p + r + …], this rank's share of the sum."""
    of_latents = [g @ weight for g, weight in zip(gradients, weights, strict=True)]
    return torch.cat([of_position, *of_latents], dim=-1)


def _of_weights(
    ctx: Any, gradients: Sequence[Tensor], latents: Sequence[Tensor]
) -> list[Tensor | None]:
    """[o/n, r] each; none where no gradient is asked for."""
    wanted = ctx.needs_input_grad[3 + ctx.count :]
    return [
        gradient.flatten(0, 1).T @ x.flatten(0, 1) if asked else None
        for gradient, x, asked in zip(gradients, latents, wanted, strict=True)
    ]


def _split(whole: Tensor, position: Tensor, latents: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """[b, s, p + r + …] -> [b, s, p] and [b, s, r] each."""
    return whole.split([x.shape[-1] for x in (position, *latents)], dim=-1)
