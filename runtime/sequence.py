"""Pieces of the sequence, [b, s/n, h] in rank order, and the whole of it."""

from __future__ import annotations

import torch.distributed as dist
from parlay.runtime.collectives import all_gather, reduce_scatter
from parlay.runtime.mesh import Axis
from torch import Tensor


def gathered(x: Tensor, axis: Axis) -> Tensor:
    """[b, s/n, h] -> [b, s, h]."""
    pieces, sent = start_gather(x, axis)
    sent.wait()
    return joined(pieces)


def start_gather(x: Tensor, axis: Axis) -> tuple[Tensor, dist.Work]:
    """[b, s/n, h] -> [n, b, s/n, h], once the work is done."""
    pieces = x.new_empty(axis.size, *x.shape)
    return pieces, all_gather(pieces.flatten(0, 1), x.contiguous(), group=axis.group, async_op=True)


def joined(pieces: Tensor) -> Tensor:
    """[n, b, s/n, h] -> [b, s, h]."""
    return pieces.transpose(0, 1).flatten(1, 2)


def start_scatter(x: Tensor, axis: Axis) -> tuple[Tensor, dist.Work]:
    """[b, s, h] -> [b, s/n, h], once the work is done."""
    b, s, h = x.shape
    if s % axis.size:
        raise ValueError(f"a sequence of {s} does not divide into {axis.size} pieces")
    pieces = x.view(b, axis.size, s // axis.size, h).transpose(0, 1).contiguous()
    piece = x.new_empty(b, s // axis.size, h)
    return piece, reduce_scatter(piece, pieces.flatten(0, 1), group=axis.group, async_op=True)
