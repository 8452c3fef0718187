"""Tensor parallelism: linear layers, embedding and cross entropy cut over one axis.

Activations are batch first, [b, s, h]. With sequence parallelism the regions between the linears
hold one piece of the sequence each, [b, s/n, h], in rank order; `gather_column`, `row_scatter` and
`embedding_scatter` are the operators at the borders of those regions, `column`, `row` and
`embedding` the ones without. Each docstring says what is sent forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, overload

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parlay.runtime import deferred
from parlay.runtime.loss import IGNORED
from parlay.runtime.mesh import Axis
from parlay.runtime.precision import wide
from parlay.runtime.sequence import gathered, joined, start_gather, start_scatter
from torch import Tensor
from torch.autograd.function import once_differentiable

# ── Linear, cut by outputs ────────────────────────────────────────────────────


@overload
def column(
    x: Tensor, weight: Tensor, /, *, biases: Sequence[Tensor] = (), axis: Axis
) -> Tensor: ...
@overload
def column(
    x: Tensor, /, *weights: Tensor, biases: Sequence[Tensor] = (), axis: Axis
) -> tuple[Tensor, ...]: ...
def column(x: Tensor, /, *weights: Tensor, biases: Sequence[Tensor] = (), axis: Axis) -> Any:
    """`x @ weight.T` for each weight; a rank holds some rows of each weight, and of its bias.

    Forward: x [b, s, i], weights [o/n, i] and biases [o/n] give [b, s, o/n]; nothing is sent.
    Backward: all_reduce of the gradient of x, behind the gradients of the weights.
    """
    out = _Column.apply(x, axis, len(weights), *weights, *biases)
    return out if len(weights) > 1 else out[0]


@overload
def gather_column(
    x: Tensor, weight: Tensor, /, *, biases: Sequence[Tensor] = (), axis: Axis
) -> Tensor: ...
@overload
def gather_column(
    x: Tensor, /, *weights: Tensor, biases: Sequence[Tensor] = (), axis: Axis
) -> tuple[Tensor, ...]: ...
def gather_column(x: Tensor, /, *weights: Tensor, biases: Sequence[Tensor] = (), axis: Axis) -> Any:
    """`column` of a sequence that is cut over the axis.

    Forward: all_gather x [b, s/n, i] to [b, s, i], which gives [b, s, o/n]; only the piece is kept.
    Backward: all_gather x again, reduce_scatter of its gradient.
    """
    out = _GatherColumn.apply(x, axis, len(weights), *weights, *biases)
    return out if len(weights) > 1 else out[0]


class _Column(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, axis: Axis, count: int, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.axis, ctx.leaves = axis, weights
        weights, biases = weights[:count], weights[count:]
        ctx.save_for_backward(x, *weights)
        return _linears(x, weights, biases)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        of_x = _of_input(gradients, weights)
        sent = dist.all_reduce(of_x, group=ctx.axis.group, async_op=True)
        wanted, late, x = ctx.needs_input_grad[3:], deferred.late(), x.detach()

        def make(_: Any) -> list[Tensor | None]:
            return _of_weights(wanted, gradients, x)

        found = make(None) if late is None else late.put(ctx.leaves, make)
        sent.wait()
        return of_x, None, None, *found


class _GatherColumn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, axis: Axis, count: int, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.axis, ctx.leaves = axis, weights
        weights, biases = weights[:count], weights[count:]
        ctx.save_for_backward(x, *weights)
        return _linears(gathered(x, axis), weights, biases)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        axis, wanted, late = ctx.axis, ctx.needs_input_grad[3:], deferred.late()
        x = x.detach()

        def start() -> tuple[Tensor, dist.Work]:
            return start_gather(x, axis)

        def make(started: tuple[Tensor, dist.Work]) -> list[Tensor | None]:
            pieces, arriving = started
            arriving.wait()
            return _of_weights(wanted, gradients, joined(pieces))

        # Only the piece is kept where the gradients of the weights are put off.
        started = start() if late is None else None
        of_x, scattered = start_scatter(_of_input(gradients, weights), axis)
        if late is None:
            assert started is not None
            found = make(started)
        else:
            found = late.put(ctx.leaves, make, start=start)
        scattered.wait()
        return of_x, None, None, *found


def _linears(
    x: Tensor, weights: tuple[Tensor, ...], biases: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """[b, s, o/n] each; every weight has its bias, or none has one."""
    if biases and len(biases) != len(weights):
        raise ValueError(f"{len(weights)} weights with {len(biases)} biases")
    pairs = zip_longest(weights, biases)
    return tuple(F.linear(x, weight, bias) for weight, bias in pairs)


def _of_input(gradients: tuple[Tensor, ...], weights: list[Tensor]) -> Tensor:
    """[b, s, i], this rank's share of the sum."""
    first, *others = zip(gradients, weights, strict=True)
    of_x = first[0] @ first[1]
    for gradient, weight in others:
        of_x += gradient @ weight
    return of_x


def _of_weights(
    wanted: Sequence[bool], gradients: tuple[Tensor, ...], x: Tensor
) -> list[Tensor | None]:
    """[o/n, i] each, then [o/n] of each bias that there is."""
    rows = x.flatten(0, 1)
    found = [
        gradient.flatten(0, 1).T @ rows if asked else None
        for gradient, asked in zip(gradients, wanted, strict=False)
    ]
    of_biases = wanted[len(gradients) :]
    found += [
        gradient.sum((0, 1)) if asked else None
        for gradient, asked in zip(gradients, of_biases, strict=False)
    ]
    return found


# ── Linear, cut by inputs ─────────────────────────────────────────────────────


def row(x: Tensor, weight: Tensor, /, *, axis: Axis) -> Tensor:
    """`x @ weight.T`; a rank holds some columns of the weight, and as many features of x.

    Forward: x [b, s, i/n] and weight [o, i/n] give a share of the sum, all_reduced to [b, s, o].
    Backward: nothing is sent.
    """
    out: Tensor = _Reduce.apply(deferred.linear(x, weight), axis)
    return out


def row_scatter(x: Tensor, weight: Tensor, /, *, axis: Axis) -> Tensor:
    """`row`, of which a rank keeps its piece of the sequence.

    Forward: x [b, s, i/n] and weight [o, i/n] give a share of the sum, reduce_scattered to
    [b, s/n, o]. Backward: all_gather of the gradient.
    """
    out: Tensor = _Scatter.apply(deferred.linear(x, weight), axis)
    return out


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.mark_dirty(x)
        dist.all_reduce(x, group=axis.group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        piece, sent = start_scatter(x, axis)
        sent.wait()
        return piece

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, ctx.axis), None


# ── Vocabulary ────────────────────────────────────────────────────────────────


def embedding(tokens: Tensor, weight: Tensor, /, *, axis: Axis) -> Tensor:
    """The rows of `tokens`; a rank holds some rows of the weight.

    Forward: tokens [b, s] and weight [v/n, h] give a share of the sum, all_reduced to [b, s, h].
    Backward: nothing is sent.
    """
    out: Tensor = _Reduce.apply(_own_rows(tokens, weight, axis), axis)
    return out


def embedding_scatter(tokens: Tensor, weight: Tensor, /, *, axis: Axis) -> Tensor:
    """`embedding`, of which a rank keeps its piece of the sequence.

    Forward: tokens [b, s] and weight [v/n, h] give a share of the sum, reduce_scattered to
    [b, s/n, h]. Backward: all_gather of the gradient.
    """
    out: Tensor = _Scatter.apply(_own_rows(tokens, weight, axis), axis)
    return out


def _own_rows(tokens: Tensor, weight: Tensor, axis: Axis) -> Tensor:
    """[b, s, h], zero where another rank has the row."""
    own = tokens - axis.rank * weight.shape[0]
    outside = (own < 0) | (own >= weight.shape[0])
    rows = F.embedding(own.masked_fill(outside, 0), weight)
    return rows.masked_fill(outside.unsqueeze(-1), 0.0)


def cross_entropy(logits: Tensor, labels: Tensor, /, *, vocab: int, axis: Axis) -> Tensor:
    """The sum of -log p(label) over the labels that count, at least in float32.

    A rank holds the logits [b, s, v/n] of some tokens; columns from `vocab` on are padding and
    get no probability. Labels [b, s] of -100 do not count.

    Forward: all_reduce of the maximum [b, s], then of the sum of exponentials and the label's logit
    [2, b, s]; what is kept is one tensor of the size of the logits.
    Backward: nothing is sent.
    """
    loss: Tensor = _CrossEntropy.apply(logits, labels, vocab, axis)
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocab: int, axis: Axis) -> Tensor:
        columns = logits.shape[-1]
        first = axis.rank * columns
        own = labels - first
        ctx.outside = (own < 0) | (own >= columns)
        own = own.masked_fill(ctx.outside, 0).unsqueeze(-1)
        counts = labels != IGNORED

        scores = logits.to(wide(logits.dtype), copy=True)
        scores[..., max(0, vocab - first) :] = -torch.inf
        peak = scores.amax(-1)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=axis.group)
        scores -= peak.unsqueeze(-1)
        target = scores.gather(-1, own).squeeze(-1).masked_fill(ctx.outside, 0.0)
        scores.exp_()
        total, target = both = torch.stack([scores.sum(-1), target])
        dist.all_reduce(both, group=axis.group)

        scores /= total.unsqueeze(-1)
        ctx.dtype = logits.dtype
        ctx.save_for_backward(scores, own, counts)
        return ((total.log() - target) * counts).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, own, counts = ctx.saved_tensors
        # p - 1 at the label, p elsewhere, 0 where the label does not count; in place.
        scores.scatter_add_(-1, own, ctx.outside.to(scores.dtype).sub_(1.0).unsqueeze(-1))
        scores *= (gradient * counts).unsqueeze(-1)
        return scores.to(ctx.dtype), None, None, None
