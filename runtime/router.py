"""Which experts a token visits, and how much each of them counts.

A router scores every expert for every token of this rank, x [t, h] -> [t, count], at least in
float32. The `top_k` best are visited, and their scores are their weights, divided by their sum: of
a softmax that is the softmax over the chosen ones alone. Nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from parlay.runtime.mesh import Axis
from parlay.runtime.precision import wide
from torch import Tensor
from torch.autograd.function import once_differentiable


class Chosen(NamedTuple):
    """The experts of each token of this rank."""

    experts: Tensor
    """[t, k] int64."""
    weights: Tensor
    """[t, k], at least in float32."""
    counts: Tensor
    """[count] int64: how many tokens of this rank visit each expert."""


class Balance(NamedTuple):
    """The losses of a layer's router, as they add to the loss of the global batch.

    `load` · count · Σ f · p over the experts, where f is the share of visits that an expert has,
    and p its mean score of those of a token together, over the tokens of a microbatch
    (arXiv:2101.03961, section 2.2). `size` · the mean square of log Σ exp of a token's logits
    (arXiv:2202.08906, section 3.1). `axes` are those that cut the microbatch's sequences.
    """

    load: float
    size: float = 0.0
    axes: Sequence[Axis] = ()


def softmax(x: Tensor, weight: Tensor, bias: Tensor | None = None, **asked: Any) -> Chosen:
    """Scores are a softmax over all experts; the other arguments are those of `choose`."""
    logits = _Scores.apply(x, weight, bias)
    return choose(logits.softmax(-1), logits=logits, **asked)


def sigmoid(x: Tensor, weight: Tensor, bias: Tensor | None = None, **asked: Any) -> Chosen:
    """Scores are a sigmoid each (arXiv:2412.19437, section 2.1.2)."""
    logits = _Scores.apply(x, weight, bias)
    return choose(logits.sigmoid(), logits=logits, **asked)


def choose(
    scores: Tensor,
    *,
    logits: Tensor,
    top_k: int,
    normalize: bool = True,
    scale: float = 1.0,
    groups: int = 1,
    top_groups: int = 1,
    correction: Tensor | None = None,
    balance: Balance | None = None,
) -> Chosen:
    """The `top_k` best of scores [t, count], and their weights.

    Of `groups` groups of neighbouring experts each token visits the `top_groups` best alone: those
    whose best top_k // top_groups scores add up to most. `correction` [count] is added to scores
    where experts and groups are compared, and nowhere else; its gradient is `counts`, by which it
    is moved after the step. `balance` adds its gradient to those of scores and logits.

    Sends, with a `balance` of loads, one all_reduce of [count] int64 over each of its axes.
    """
    t, count = scores.shape
    with torch.no_grad():
        ranked = scores if correction is None else scores + correction
        if groups > top_groups:
            each = ranked.view(t, groups, count // groups)
            best = each.topk(max(1, top_k // top_groups), dim=-1).values.sum(-1)
            left_out = torch.ones_like(best, dtype=torch.bool)
            left_out.scatter_(1, best.topk(top_groups, dim=-1).indices, False)
            ranked = each.masked_fill(left_out.unsqueeze(-1), float("-inf")).flatten(1)
        experts = ranked.topk(top_k, dim=-1).indices
        # bincount would wait for the GPU, to see how many there are.
        visits = experts.flatten()
        counts = torch.zeros(count, dtype=torch.int64, device=scores.device)
        counts.scatter_add_(0, visits, torch.ones_like(visits))
    weights = scores.gather(1, experts)
    if top_k > 1 and normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    if scale != 1.0:
        weights = weights * scale
    if balance is not None and balance.load:
        weights = _Beside.apply(weights, _auxiliary(scores, counts, balance))
    if balance is not None and balance.size:
        tokens = t * prod(axis.size for axis in balance.axes)
        squares = logits.logsumexp(-1).square().sum()
        weights = _Beside.apply(weights, balance.size / tokens * squares)
    if correction is not None:
        weights = _Counted.apply(weights, correction, counts)
    return Chosen(experts, weights, counts)


def _auxiliary(scores: Tensor, counts: Tensor, balance: Balance) -> Tensor:
    """This rank's share of the auxiliary loss: that of its tokens' scores."""
    t, count = scores.shape
    visits, tokens = counts, t
    for axis in balance.axes:
        visits = visits.clone()
        dist.all_reduce(visits, group=axis.group)
        tokens *= axis.size
    shares = visits.to(scores.dtype) / visits.sum()
    means = (scores / scores.sum(-1, keepdim=True)).sum(0) / tokens
    return balance.load * count * (shares * means).sum()


class _Scores(torch.autograd.Function):
    """x [t, h], weight [count, h] -> x @ weight.T + bias, at least in float32; x is kept as is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        dtype = wide(x.dtype)
        scores = x.to(dtype) @ weight.to(dtype).T
        return scores if bias is None else scores.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x = gradient @ weight.to(gradient.dtype)
        of_weight = gradient.T @ x.to(gradient.dtype)
        of_bias = gradient.sum(0).to(weight.dtype) if ctx.biased else None
        return of_x.to(x.dtype), of_weight.to(weight.dtype), of_bias


class _Beside(torch.autograd.Function):
    """`weights`; backward, a loss of its own has the gradient 1."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, loss: Tensor) -> Tensor:
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient.new_ones(())


class _Counted(torch.autograd.Function):
    """`weights`; backward, the gradient of the correction is what its experts have been visited."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, correction: Tensor, counts: Tensor) -> Tensor:
        ctx.save_for_backward(counts)
        ctx.dtype = correction.dtype
        return weights.view_as(weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (counts,) = ctx.saved_tensors
        return gradient, counts.to(ctx.dtype), None
