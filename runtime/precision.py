"""Dtypes by the names that plan.json uses."""

from __future__ import annotations

import torch

_NAMES = ("float64", "float32", "bfloat16", "float16")


def dtype(name: str) -> torch.dtype:
    """`"bfloat16"` -> `torch.bfloat16`."""
    if name not in _NAMES:
        raise ValueError(f"dtype {name} is none of {', '.join(_NAMES)}")
    found: torch.dtype = getattr(torch, name)
    return found


def wide(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, but at least float32: what losses and norms are summed in."""
    return torch.promote_types(dtype, torch.float32)
