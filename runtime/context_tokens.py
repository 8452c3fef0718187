"""Which tokens of a sequence a rank has, and tensors by rank or by position.

Either piece r of n, or chunks r and 2n-1-r of 2n: under a causal mask every rank then has the same
work.
"""

from __future__ import annotations

import torch
from parlay.runtime.mesh import Axis
from torch import Tensor


def head_tail(s: int, *, axis: Axis, device: torch.device | None = None) -> Tensor:
    """The positions [s/n] of this rank's tokens: chunks r and 2n-1-r of 2n, int64."""
    rows = rows_of(_chunk(s, 2 * axis.size), axis)
    return torch.cat([torch.arange(one.start, one.stop, device=device) for one in rows])


def piece(s: int, *, axis: Axis, device: torch.device | None = None) -> Tensor:
    """The positions [s/n] of this rank's tokens: piece r of n, int64."""
    size = _chunk(s, axis.size)
    return torch.arange(axis.rank * size, (axis.rank + 1) * size, device=device)


def _chunk(s: int, chunks: int) -> int:
    size, rest = divmod(s, chunks)
    if rest:
        raise ValueError(f"a sequence of {s} does not divide into {chunks} chunks")
    return size


def rows_of(chunk: int, axis: Axis) -> tuple[range, range]:
    """The positions of chunks r and 2n-1-r of `chunk` tokens."""
    first, last = axis.rank, 2 * axis.size - 1 - axis.rank
    return range(first * chunk, (first + 1) * chunk), range(last * chunk, (last + 1) * chunk)


def joined(parts: Tensor, *, folded: bool) -> Tensor:
    """[n, b, heads, s/n, d], by rank -> [b, heads, s, d], by position.

    `folded` says that ranks have chunks r and 2n-1-r: then the first chunks of all ranks come
    first, and behind them the second ones, those of the last rank first.
    """
    if not folded:
        return parts.permute(1, 2, 0, 3, 4).flatten(2, 3)
    heads, tails = parts.unflatten(3, (2, -1)).unbind(3)
    return torch.cat([heads, tails.flip(0)]).permute(1, 2, 0, 3, 4).flatten(2, 3)


def parted(x: Tensor, n: int, *, folded: bool) -> Tensor:
    """[b, heads, s, d], by position -> [n, b, heads, s/n, d], by rank."""
    if not folded:
        return x.unflatten(2, (n, -1)).permute(2, 0, 1, 3, 4).contiguous()
    heads, tails = x.unflatten(2, (2 * n, -1)).permute(2, 0, 1, 3, 4).chunk(2)
    return torch.cat([heads, tails.flip(0)], dim=3)
