"""Experts: tokens go to the ranks that hold them, and come back, none of them dropped.

Each rank holds some whole experts, neighbours in number, or with `etp` a share of the features of
each. A token's visits travel by all_to_all with as many rows as there are: what a rank sends is
known, what it receives is told by an all_to_all of counts before. What ranks of `etp` received is
sent to all of them, and what they made is summed, by all_to_alls too, since rows are not as many
on each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parlay.runtime.collectives import all_gather
from parlay.runtime.mesh import Axis
from parlay.runtime.router import Chosen
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def holds(number: int, experts: Any) -> bool:
    """Whether layer `number`, counted from 0, has experts: after `dense_layers` layers the last of
    each `every`."""
    place: int = number - experts.dense_layers
    return place >= 0 and (place + 1) % experts.every == 0


class Grouped(nn.Module):
    """A matrix for each of several experts, in one weight [experts, outputs, inputs].

    With `bias` each has one, in one weight [experts, outputs]. What ranks of `summed` make is
    added up: each has the biases of its share of the outputs, [experts, outputs/n].
    """

    def __init__(
        self,
        experts: int,
        inputs: int,
        outputs: int,
        *,
        bias: bool = False,
        summed: Axis | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        share = outputs if summed is None else outputs // summed.size
        self.first = 0 if summed is None else summed.rank * share
        self.bias = nn.Parameter(torch.empty(experts, share)) if bias else None

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """x [rows, inputs], those of each expert after the other, `counts` [experts] of them
        -> [rows, outputs]"""
        y = self.products(x, counts)
        return y if self.bias is None else _Biased.apply(y, self.bias, counts, self.first)

    def products(self, x: Tensor, counts: Tensor) -> Tensor:
        """What `forward` gives without biases."""
        # Torch has no grouped product in float64, nor of rows that start anywhere in memory.
        at = *self.weight.shape[1:], self.weight.storage_offset()
        if x.dtype == torch.float64 or any(one * x.element_size() % 16 for one in at):
            pairs = zip(x.split(counts.tolist()), self.weight, strict=True)
            return torch.cat([F.linear(rows, matrix) for rows, matrix in pairs])
        if not len(x):  # nor of none, on every GPU
            return F.linear(x, self.weight[0])
        matrices, ends = _Visited.apply(self.weight, counts), counts.cumsum(0).to(torch.int32)
        return F.grouped_mm(x, matrices.transpose(1, 2), offs=ends)


def visit(
    x: Tensor,
    chosen: Chosen,
    experts: Callable[[Tensor, Tensor], Tensor],
    *,
    ep: Axis | None = None,
    etp: Axis | None = None,
) -> Tensor:
    """The weighed sum of what its experts make of each token, x [t, h] -> [t, h].

    `experts(rows, counts)` are those of this rank: rows [n, h], those of each expert after the
    other, give as many; with `etp` a share of the sum.

    Forward: over ep an all_to_all of counts, one of the visits and one of what was made of them;
    over etp an all_gather of counts and two all_to_alls. Backward: the all_to_alls of rows, once
    more in each group. Over all ranks of both groups together the rows are t · k on each.
    """
    t, k = chosen.experts.shape
    order = chosen.experts.flatten().argsort(stable=True)
    rows: Tensor = _Copies.apply(x, order, k)
    # [blocks, experts of this rank]: rows of each, in the order in which they lie here.
    counts = chosen.counts.unsqueeze(0)
    if ep is not None:
        out = chosen.counts.view(ep.size, -1)
        counts = torch.empty_like(out)
        dist.all_to_all_single(counts, out, group=ep.group)
        sent, received = out.sum(1).tolist(), counts.sum(1).tolist()
        rows = _Exchanged.apply(rows, sent, received, ep)
    if etp is not None:
        own, counts = counts, counts.new_empty(etp.size * len(counts), counts.shape[1])
        all_gather(counts, own.contiguous(), group=etp.group)
        shares = counts.view(etp.size, -1).sum(1).tolist()
        rows = _Gathered.apply(rows, shares, etp)
    by_expert = None
    if len(counts) > 1:
        numbers = torch.arange(counts.shape[1], device=x.device).repeat(len(counts))
        numbers = numbers.repeat_interleave(counts.flatten(), output_size=len(rows))
        by_expert = numbers.argsort(stable=True)
        rows = _Moved.apply(rows, by_expert)
    rows = experts(rows, counts.sum(0))
    if by_expert is not None:
        rows = _Moved.apply(rows, _inverse(by_expert))
    if etp is not None:
        rows = _Scattered.apply(rows, shares, etp)
    if ep is not None:
        rows = _Exchanged.apply(rows, received, sent, ep)
    made = _Moved.apply(rows, _inverse(order)).view(t, k, -1)
    return (chosen.weights.to(made.dtype).unsqueeze(1) @ made).squeeze(1)


def _inverse(order: Tensor) -> Tensor:
    """The permutation that undoes `order`."""
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse


# ── Rows on one rank ──────────────────────────────────────────────────────────


class _Visited(torch.autograd.Function):
    """The matrices as they are. Backward: the gradient of an expert that no row visits is zero.

    Some GPUs' kernels of a grouped product leave there what the memory held before. The product
    itself is torch's: it keeps what it needs before it computes, so that nothing is multiplied
    again where what comes before it is computed again.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, counts: Tensor) -> Tensor:
        ctx.save_for_backward(counts)
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (counts,) = ctx.saved_tensors
        return gradient.masked_fill_((counts == 0)[:, None, None], 0.0), None


class _Biased(torch.autograd.Function):
    """The bias [experts, outputs/n] of each row's expert, added to its outputs from `first` on.

    Backward: a product with which rows are whose, so that the order of the sums is one.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor, counts: Tensor, first: int) -> Tensor:
        ctx.save_for_backward(counts)
        ctx.share = slice(first, first + bias.shape[1])
        ctx.mark_dirty(y)
        y[:, ctx.share] += bias[_owners(counts, len(y))]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (counts,) = ctx.saved_tensors
        experts = torch.arange(len(counts), device=counts.device)
        whose = _owners(counts, len(gradient)) == experts.unsqueeze(1)
        return gradient, whose.to(gradient.dtype) @ gradient[:, ctx.share], None, None


def _owners(counts: Tensor, rows: int) -> Tensor:
    """The expert of each row, [rows]."""
    numbers = torch.arange(len(counts), device=counts.device)
    return numbers.repeat_interleave(counts, output_size=rows)


class _Copies(torch.autograd.Function):
    """Each row of x `k` times, in `order`. Backward: the sum over its copies."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(order)
        ctx.k = k
        return x[order // k]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return gradient[_inverse(order)].unflatten(0, (-1, ctx.k)).sum(1), None, None


class _Moved(torch.autograd.Function):
    """The rows of x in `order`, a permutation. Nothing is added up, so the order of sums is one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return gradient[_inverse(order)], None


# ── Rows between ranks ────────────────────────────────────────────────────────


class _Exchanged(torch.autograd.Function):
    """`sent[i]` rows of x go to rank i of the axis, and `received[i]` come from it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sent: list[int], received: list[int], axis: Axis) -> Tensor:
        ctx.sent, ctx.received, ctx.axis = sent, received, axis
        return _exchange(x, sent, received, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchange(gradient, ctx.received, ctx.sent, ctx.axis), None, None, None


class _Gathered(torch.autograd.Function):
    """The rows of all ranks of the axis, rank i's `shares[i]`, one after the other.

    Backward: the sum of all ranks' gradients of this rank's rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shares: list[int], axis: Axis) -> Tensor:
        ctx.shares, ctx.axis = shares, axis
        return _gather(x, shares, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _sum(gradient, ctx.shares, ctx.axis), None, None


class _Scattered(torch.autograd.Function):
    """The sum of all ranks' rows, of which rank i of the axis has the `shares[i]` of its turn.

    Backward: the gradients of all ranks' rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shares: list[int], axis: Axis) -> Tensor:
        ctx.shares, ctx.axis = shares, axis
        return _sum(x, shares, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _gather(gradient, ctx.shares, ctx.axis), None, None


def _exchange(x: Tensor, sent: list[int], received: list[int], axis: Axis) -> Tensor:
    out = x.new_empty(sum(received), *x.shape[1:])
    dist.all_to_all_single(out, x.contiguous(), received, sent, group=axis.group)
    return out


def _gather(x: Tensor, shares: list[int], axis: Axis) -> Tensor:
    """x goes to every rank."""
    return _exchange(x.repeat(axis.size, 1), [len(x)] * axis.size, shares, axis)


def _sum(x: Tensor, shares: list[int], axis: Axis) -> Tensor:
    """Every rank's part of x goes to it; this rank's parts are added up in the order of ranks."""
    own = shares[axis.rank]
    return _exchange(x, shares, [own] * axis.size, axis).view(axis.size, own, -1).sum(0)
