"""The two collectives whose names changed between versions of torch."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

_NEW = hasattr(dist, "all_gather_single")

# all_gather(output, input, group): output holds the inputs of all ranks, one after the other.
all_gather: Any = dist.all_gather_single if _NEW else dist.all_gather_into_tensor

# reduce_scatter(output, input, group): output is this rank's piece of the sum of all inputs.
reduce_scatter: Any = dist.reduce_scatter_single if _NEW else dist.reduce_scatter_tensor
