"""Activations that torch has no function for, and that keep no more than others do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

STEEP = 1.702
"""x · sigmoid(1.702 · x) is nearly gelu (arXiv:1606.08415, section 2)."""


def quick_geglu(
    gate: Tensor, up: Tensor, *, clamp: float | None = None, offset: float = 0.0
) -> Tensor:
    """g · sigmoid(1.702 · g) · (u + `offset`) of gate g and u, what it multiplies, [.., f] each.

    With `clamp` g is at most so large, and u lies between -`clamp` and `clamp`. Three tensors are
    kept.
    """
    made: Tensor = _QuickGeglu.apply(gate, up, clamp, offset)
    return made


class _QuickGeglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, clamp: float | None, offset: float) -> Tensor:
        ctx.clamp, ctx.offset = clamp, offset
        g, u = _clamped(gate, up, clamp)
        share = torch.sigmoid(STEEP * g)
        ctx.save_for_backward(gate, up, share)
        return g * share * (u + offset)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        gate, up, share = ctx.saved_tensors
        g, u = _clamped(gate, up, ctx.clamp)
        of_gate = gradient * (u + ctx.offset) * share * (1 + STEEP * g * (1 - share))
        of_up = gradient * g * share
        if ctx.clamp is not None:
            of_gate = of_gate.masked_fill(gate > ctx.clamp, 0.0)
            of_up = of_up.masked_fill(up.abs() > ctx.clamp, 0.0)
        return of_gate, of_up, None, None


def _clamped(gate: Tensor, up: Tensor, clamp: float | None) -> tuple[Tensor, Tensor]:
    return (gate, up) if clamp is None else (gate.clamp(max=clamp), up.clamp(-clamp, clamp))
