"""Heads for pieces of the sequence: what ranks have is dealt out anew, before attention and behind.

Any attention of one rank stands between the two; tokens lie as `head_tail` or `piece` has them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.context_tokens import joined, parted
from parlay.runtime.mesh import Axis
from torch import Tensor
from torch.autograd.function import once_differentiable


def to_heads(
    q: Tensor, k: Tensor, v: Tensor, *, axis: Axis, folded: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """All heads of a piece of the sequence -> a part of the heads, over the whole of it:
    [b, heads, s/n, d] -> [b, heads/n, s, d] (arXiv:2309.14509).

    Fewer key/value heads than ranks are copied. `folded` says that ranks have the tokens of
    `head_tail`, not of `piece`.

    Forward: all_to_all of the queries, another of keys and values together. Backward: both again.
    """
    kv_heads, widths = k.shape[1], (k.shape[-1], v.shape[-1])
    pair = torch.cat([k, v], dim=-1)
    if kv_heads < axis.size:
        pair = pair.repeat_interleave(axis.size // kv_heads, 1)
    query: Tensor = _ToHeads.apply(q, axis, folded)
    pair = _ToHeads.apply(pair, axis, folded)
    keys, values = pair.split(widths, dim=-1)
    return query, keys, values


def to_sequence(x: Tensor, *, axis: Axis, folded: bool = False) -> Tensor:
    """The way back: [b, heads/n, s, d] -> [b, heads, s/n, d].

    Forward: all_to_all. Backward: all_to_all.
    """
    out: Tensor = _ToSequence.apply(x, axis, folded)
    return out


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, folded: bool) -> Tensor:
        ctx.axis, ctx.folded = axis, folded
        return _dealt(x, axis, folded)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _collected(gradient, ctx.axis, ctx.folded), None, None


class _ToSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, folded: bool) -> Tensor:
        ctx.axis, ctx.folded = axis, folded
        return _collected(x, axis, folded)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _dealt(gradient, ctx.axis, ctx.folded), None, None


def _dealt(x: Tensor, axis: Axis, folded: bool) -> Tensor:
    """[b, heads, s/n, d] -> [b, heads/n, s, d]"""
    return joined(_exchanged(x.unflatten(1, (axis.size, -1)).movedim(1, 0), axis), folded=folded)


def _collected(x: Tensor, axis: Axis, folded: bool) -> Tensor:
    """[b, heads/n, s, d] -> [b, heads, s/n, d]"""
    parts = _exchanged(parted(x, axis.size, folded=folded), axis)
    return parts.movedim(0, 1).flatten(1, 2)


def _exchanged(parts: Tensor, axis: Axis) -> Tensor:
    """[n, ...]: part i goes to rank i, and part i comes from it."""
    parts = parts.contiguous()
    came = torch.empty_like(parts)
    dist.all_to_all_single(came, parts, group=axis.group)
    return came
