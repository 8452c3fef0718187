"""The two collectives whose names changed between versions of torch, and several as one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _coalescing_manager

_NEW = hasattr(dist, "all_gather_single")

# all_gather(output, input, group): output holds the inputs of all ranks, one after the other.
all_gather: Any = dist.all_gather_single if _NEW else dist.all_gather_into_tensor

# reduce_scatter(output, input, group): output is this rank's piece of the sum of all inputs.
reduce_scatter: Any = dist.reduce_scatter_single if _NEW else dist.reduce_scatter_tensor


def together(collective: Any, pairs: Sequence[tuple[Tensor, Tensor]], *, group: Any) -> Any:
    """Starts `collective(output, input)` for each of `pairs` as one call; `wait()` ends it."""
    if len(pairs) == 1:
        return collective(*pairs[0], group=group, async_op=True)
    with _coalescing_manager(group=group, async_ops=True) as work:
        for output, given in pairs:
            collective(output, given, group=group)
    return work
