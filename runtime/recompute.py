"""Computing again in the backward what the forward did not keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint


def recompute(function: Callable[..., Tensor], /, *arguments: Tensor) -> Tensor:
    """`function(*arguments)`, of which nothing is kept but the arguments.

    Backward: `function` runs again, up to the last thing that its gradients need. What it sends
    behind that, the sum over tp at its end, is not sent again; what it sends before it, is.
    Nothing in it may be random.
    """
    out: Tensor = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return out


def renormed(norm: nn.Module, sublayer: Callable[..., Tensor], x: Tensor, *more: Tensor) -> Tensor:
    """`sublayer(norm(x), *more)`, of which what the norm made is not kept.

    Backward: the norm runs again where its output is first needed, from x, which it has kept
    itself; the output goes with its last use. Of the sublayer nothing runs again.
    """
    y = norm(x)
    again, storage = _Again(norm, x), y.untyped_storage()._cdata

    def pack(tensor: Tensor) -> Tensor | _View:
        if tensor.untyped_storage()._cdata != storage:
            return tensor
        again.uses += 1
        return _View(again, tensor.size(), tensor.stride(), tensor.storage_offset())

    with saved_tensors_hooks(pack, _unpack):
        return sublayer(y, *more)


class _Again:
    """The output of a norm, made when it is asked for, held until its last use."""

    def __init__(self, norm: nn.Module, x: Tensor) -> None:
        self.norm, self.x, self.uses = norm, x.detach(), 0
        self.made: Tensor | None = None

    def use(self) -> Tensor:
        if self.made is None:
            with torch.no_grad():
                self.made = self.norm(self.x)
        made = self.made
        self.uses -= 1
        if not self.uses:
            self.made = None
        return made


class _View(NamedTuple):
    """A tensor that shares the memory of a norm's output."""

    of: _Again
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


def _unpack(kept: Tensor | _View) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    return kept.of.use().as_strided(kept.size, kept.stride, kept.offset)
