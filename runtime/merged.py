"""Outputs of blocks of keys, joined by their log-sum-exp, and what sinks take from them."""

from __future__ import annotations

import torch
from parlay.runtime.precision import wide
from torch import Tensor


class Merged:
    """Attention over more and more keys: outputs of blocks, joined by their log-sum-exp."""

    def __init__(self, q: Tensor, width: int) -> None:
        self.dtype, shape = q.dtype, q.shape[:-1]
        self.out = q.new_zeros(*shape, width, dtype=wide(q.dtype))
        self.lse = torch.full(shape, -torch.inf, dtype=self.out.dtype, device=q.device)

    def add(self, rows: slice, out: Tensor, lse: Tensor) -> None:
        """What the queries `rows` see besides: `out` [b, heads, rows, e], `lse` [b, heads, rows]"""
        before, lse = self.lse[:, :, rows], lse.to(self.lse.dtype)
        both = torch.logaddexp(before, lse)
        kept = self.out[:, :, rows] * (before - both).exp().unsqueeze(-1)
        self.out[:, :, rows] = kept + out * (lse - both).exp().unsqueeze(-1)
        self.lse[:, :, rows] = both

    def done(self, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp, in which sinks count."""
        lse = self.lse
        if sinks is not None:
            lse = torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
            self.out *= (self.lse - lse).exp().unsqueeze(-1)
        return self.out.to(self.dtype), lse


def of_sinks(sinks: Tensor | None, gradient: Tensor, out: Tensor, lse: Tensor) -> Tensor | None:
    """The gradient of sinks [heads]: a sink's share of the softmax takes from the output what it
    has, and gives nothing."""
    if sinks is None:
        return None
    share = (sinks.to(lse.dtype)[:, None] - lse).exp()
    taken = (gradient.to(lse.dtype) * out).sum(-1)
    return -(share * taken).sum((0, 2)).to(sinks.dtype)
