"""What a recipe comes to: dtypes by their torch names, microbatches, layers computed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.schema import Setting

DTYPES: Final = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
BYTES: Final = {"float64": 8, "int64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
GRADIENT_BUCKET: Final = 40_000_000
"""Elements of one gradient all-reduce: large enough for the bandwidth, small enough to overlap."""


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The dtypes of a job by their torch names; `loss` is at least float32."""

    compute: str
    gradients: str
    master: str
    optimizer: str

    @property
    def wide(self) -> str:
        """Where sums over the vocabulary and over gradients are made."""
        return "float64" if self.compute == "float64" else "float32"


def dtypes_of(spec: Spec) -> Dtypes:
    """The dtypes that a spec asks for; fp8 and fp4 recipes keep bf16 between the products."""
    train = spec.train
    assert train is not None
    exact = train.precision == "fp64"
    compute = DTYPES.get(train.precision, "bfloat16")
    gradients = "float64" if exact else DTYPES[train.gradients]
    master = compute if exact or train.master == "none" else "float32"
    states = train.optimizer.get("states", "fp32")
    optimizer = "float64" if exact else DTYPES[states]
    return Dtypes(compute, gradients, master, optimizer)


def microbatches(spec: Spec) -> int:
    """Microbatches of one step: global batch / (micro-batch · dp)."""
    train = spec.train
    assert train is not None
    return train.global_batch // (train.micro_batch * spec.parallel.dp)


def passes(spec: Spec) -> int:
    """Microbatches that pass each chunk in one step; half of them, where a copy of it has the
    others."""
    halves = spec.parallel.pp > 1 and spec.parallel.schedule.name == "dualpipe"
    return microbatches(spec) // (2 if halves else 1)


def recomputed_layers(recompute: Setting, layers: int) -> int:
    """How many of the `layers` of a stage are computed again as a whole."""
    if recompute.name != "full":
        return 0
    first, every = recompute.get("first"), recompute.get("every")
    return min(first, layers) if first is not None else -(-layers // (every or 1))
