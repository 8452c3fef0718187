"""Computing again in the backward what the forward did not keep."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint


def recompute(function: Callable[..., Tensor], /, *arguments: Tensor) -> Tensor:
    """`function(*arguments)`, of which nothing is kept but the arguments.

    Backward: `function` runs again, up to the last thing that its gradients need. What it sends
    behind that, the sum over tp at its end, is not sent again; what it sends before it, is.
    Nothing in it may be random.
    """
    out: Tensor = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return out
