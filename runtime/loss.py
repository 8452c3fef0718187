"""A global batch, and the number of labels that its mean loss is over."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from parlay.runtime.mesh import Axis
from torch import Tensor

IGNORED = -100
"""The label of a token that does not count."""

Batch = Sequence[Sequence[Tensor]]
"""One rank's microbatches `(tokens, labels)`, each [b, s] int64."""


def valid_labels(batch: Batch, *, device: torch.device, axis: Axis | None = None) -> Tensor:
    """How many labels count in a global batch, at least 1: an int64.

    `batch` is this rank's microbatches, the other ones are those of `axis`: one all_reduce.
    """
    count = torch.tensor(sum(int((labels != IGNORED).sum()) for _, labels in batch), device=device)
    if axis is not None:
        dist.all_reduce(count, group=axis.group)
    return count.clamp(min=1)
