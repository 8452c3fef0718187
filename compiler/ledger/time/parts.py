"""Nominal seconds by component: what a layer, a stage or a step would take at full efficiency.

Every component is linear in one efficiency of the table, so a step's time is the sum of its parts,
each multiplied by its factor. That is what makes the table fittable and each share printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

COMPONENTS: Final = (
    "gemm",  # matrix products at bf16, fp16 or fp32
    "gemm_low",  # linear layers at fp8 or fp4
    "expert",  # products of routed experts at bf16
    "expert_low",  # the same at fp8 or fp4
    "attention",  # score and value products of a fused kernel
    "unfused",  # the same as plain batched products, with the traffic of the score matrix
    "pointwise",  # norms, activations, residuals, positions: bytes over memory bandwidth
    "quantise",  # casts to fp8 or fp4
    "permute",  # tokens sorted by expert and back
    "loss",  # traffic of the logits
    "accumulate",  # weight gradients added up over microbatches
    "launch",  # start and tail of kernels
    "host",  # all of a layer where starting its kernels takes longer than running them
    "optimizer",  # the update of the rank's share of the state
    "tp",
    "cp",
    "ep",
    "pp",
    "dp",
    "straggle",  # waiting for the slowest of many ranks
)
"""The components, by name; the last group are exposed collectives."""

Parts = Mapping[str, float]
"""Nominal seconds by component; a component left out takes no time."""

NOTHING: Final[Parts] = MappingProxyType({})


def add(into: dict[str, float], parts: Parts, times: float = 1.0) -> None:
    """`into` += `times` · `parts`."""
    for name, seconds in parts.items():
        into[name] = into.get(name, 0.0) + times * seconds


def total(parts: Parts, factors: Mapping[str, float]) -> float:
    """Seconds: every part times its factor, summed."""
    return sum(seconds * factors[name] for name, seconds in parts.items())
