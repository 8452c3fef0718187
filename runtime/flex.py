"""Torch's FlexAttention: scores that are bent, and which blocks of keys no query sees."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128
"""Queries, and keys, of a block of the mask."""


def on_gpu(q: Tensor) -> bool:
    """Whether kernels of a GPU compute with it."""
    return q.is_cuda


@cache
def compiled() -> Any:
    """FlexAttention, for the shapes that it is called with."""
    return torch.compile(flex_attention, dynamic=False)


def bent_by(cap: float, slopes: Tensor | None, at: Tensor) -> Any:
    """The function of a score, its batch, head, query and key; None where scores stay."""

    def bent(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap:
            score = torch.tanh(score / cap) * cap
        if slopes is not None:
            score = score - slopes[h] * (at[i] - j)
        return score

    return bent if cap or slopes is not None else None


@cache
def block_mask(
    s: int,
    window: int | None,
    device: torch.device,
    keys: int | None = None,
    rows: tuple[range, ...] = (),
) -> BlockMask:
    """Which blocks of keys each block of queries sees: in part, or whole.

    The same as `create_block_mask`, which would look at all pairs. Queries ascend in `rows`.
    Positions are a tensor, and no number that a kernel would be compiled for: all blocks of a ring
    have one kernel, of which torch compiles eight at the most before it computes without any.
    """
    t = s if keys is None else keys
    at = positions(s, rows, device)

    def before(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= at[i]

    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= at[i]) & (at[i] - j < window)

    starts = torch.arange(0, s, BLOCK, device=device)
    first, last = at[starts, None], at[(starts + BLOCK).clamp(max=s) - 1, None]
    left = torch.arange(0, t, BLOCK, device=device)
    right = left + BLOCK - 1
    some, whole = left <= last, right <= first
    if window is not None:
        some, whole = some & (first - right < window), whole & (last - left < window)
    whole &= (right < t) & (starts[:, None] + BLOCK <= s)
    lists = [part for kind in (some & ~whole, whole) for part in _listed(kind)]
    mask = before if window is None else near
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=BLOCK, mask_mod=mask, seq_lengths=(s, t))


def positions(s: int, rows: tuple[range, ...], device: torch.device) -> Tensor:
    """[s], int64."""
    runs = [torch.arange(one.start, one.stop, device=device) for one in rows or (range(s),)]
    return torch.cat(runs)


def _listed(kind: Tensor) -> tuple[Tensor, Tensor]:
    """[n, n] -> how many in each row [1, 1, n], and which, those first, [1, 1, n, n]."""
    rows = kind.to(torch.int32)
    which = rows.argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return rows.sum(-1, dtype=torch.int32)[None, None], which[None, None]
