"""Low-rank adapters on frozen linears (LoRA, arXiv:2106.09685): y = W x + alpha/rank · B A x.

W is frozen, A [rank, i] and B [o, rank] are trained; B starts at zero. Over tp a linear that is cut
by outputs has A whole and rows of B, one that is cut by inputs columns of A and B whole. Every rank
has a share of the gradients of what is whole, which `sum_whole` adds up once a step. Frozen weights
ask for no gradient, so a gathered input is not kept and not gathered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parlay.runtime.mesh import Axis
from parlay.runtime.plan import Section
from parlay.runtime.sequence import gathered, joined, start_gather, start_scatter
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ENDS = (".lora_a", ".lora_b")
"""The ends of the names of what is trained."""


class Adapted(nn.Linear):
    """A linear with an adapter of `lora.rank` features, of size `lora.alpha`."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, lora: Section) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.lora_a = nn.Parameter(torch.empty(lora.rank, inputs))
        self.lora_b = nn.Parameter(torch.empty(outputs, lora.rank))
        self.scale = lora.alpha / lora.rank

    def forward(self, x: Tensor) -> Tensor:
        """x [..., i] -> [..., o]"""
        return linear(x, self, self.low(x), bias=self.bias)

    def low(self, x: Tensor) -> Tensor:
        """x [..., i] -> [..., rank]"""
        return F.linear(x, self.lora_a) * self.scale


def freeze(model: nn.Module) -> None:
    """After: adapters alone ask for gradients."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith(ENDS))


def linear(x: Tensor, of: nn.Module, low: Tensor | None, *, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T`, and what the adapter makes of `low`."""
    y = F.linear(x, of.weight, bias)
    return y if low is None else y.add_(F.linear(low, of.lora_b))


# ── Cut by outputs ────────────────────────────────────────────────────────────


def column(x: Tensor, /, *linears: nn.Module, biases: Sequence[Tensor] = (), axis: Axis) -> Any:
    """Linears of which a rank holds some rows, and of their biases and B; A is whole.

    Forward: x [b, s, i] gives [b, s, o/n] each; nothing is sent.
    Backward: all_reduce of the gradient of x, where x asks for one.
    """
    x = _Spread.apply(x, axis)
    lows = [_low(one, x) for one in linears]
    return _outputs(x, linears, lows, biases)


def gather_column(
    x: Tensor, /, *linears: nn.Module, biases: Sequence[Tensor] = (), axis: Axis
) -> Any:
    """`column` of a sequence that is cut over the axis.

    Forward: all_gather of x [b, s/n, i] and of its low-rank features [b, s/n, ranks]; they give
    [b, s, o/n] each. The gathered x is not kept.
    Backward: reduce_scatter of the gradients of both, of x where x asks for one.
    """
    adapted = [one for one in linears if isinstance(one, Adapted)]
    if not adapted:
        (x,) = _Gather.apply(axis, x)
        return _outputs(x, linears, [None] * len(linears), biases)
    x, low = _Gather.apply(axis, x, torch.cat([one.low(x) for one in adapted], dim=-1))
    parts = iter(low.chunk(len(adapted), dim=-1))
    lows = [next(parts) if isinstance(one, Adapted) else None for one in linears]
    return _outputs(x, linears, lows, biases)


def _low(one: nn.Module, x: Tensor) -> Tensor | None:
    return one.low(x) if isinstance(one, Adapted) else None


def _outputs(
    x: Tensor,
    linears: Sequence[nn.Module],
    lows: Sequence[Tensor | None],
    biases: Sequence[Tensor],
) -> Any:
    given = biases or [None] * len(linears)
    out = tuple(
        linear(x, one, low, bias=bias) for one, low, bias in zip(linears, lows, given, strict=True)
    )
    return out if len(out) > 1 else out[0]


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.axis.group)
        return gradient, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, axis: Axis, *pieces: Tensor) -> tuple[Tensor, ...]:
        ctx.axis = axis
        under_way = [start_gather(piece, axis) for piece in pieces]
        for _, sent in under_way:
            sent.wait()
        return tuple(joined(parts) for parts, _ in under_way)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        under_way = [
            start_scatter(gradient, ctx.axis) if asked else None
            for gradient, asked in zip(gradients, wanted, strict=True)
        ]
        found: list[Tensor | None] = []
        for one in under_way:
            if one is not None:
                one[1].wait()
            found.append(None if one is None else one[0])
        return None, *found


# ── Cut by inputs ─────────────────────────────────────────────────────────────


def row(x: Tensor, of: Adapted, /, *, axis: Axis) -> Tensor:
    """A linear of which a rank holds some columns, and of A; B is whole, the bias left out.

    Forward: x [b, s, i/n] gives a share of both sums, all_reduced to [b, s, o] together.
    Backward: nothing is sent.
    """
    out: Tensor = _Sum.apply(linear(x, of, of.low(x)), axis)
    return out


def row_scatter(x: Tensor, of: Adapted, /, *, axis: Axis) -> Tensor:
    """`row`, of which a rank keeps its piece of the sequence.

    Forward: a share of both sums, reduce_scattered to [b, s/n, o] together.
    Backward: all_gather of the gradient.
    """
    out: Tensor = _Scatter.apply(linear(x, of, of.low(x)), axis)
    return out


class _Sum(torch.autograd.Function):
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
