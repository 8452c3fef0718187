"""Low-rank adapters (LoRA, arXiv:2106.09685): on every projection of attention and of the MLPs that
each token passes; routed experts, whose matrices are stacked, have none, nor has their router.

Of a matrix o × i there are `lora_a`, rank × i, and `lora_b`, o × rank. tp cuts the side that it
cuts of the matrix; the other is whole on every rank. Nothing else is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from parlay.compiler.ledger.parameters import Weight
from parlay.compiler.spec.blocks import GATED, Model, Spec

KINDS = ("attention", "mlp", "shared_experts")
"""The kinds of the matrices that have adapters."""


def rank_of(spec: Spec) -> int | None:
    """The rank of the adapters; None where all weights are trained."""
    train = spec.train
    return None if train is None or train.lora is None else train.lora["rank"]


def adapters(rows: Iterable[Weight], rank: int) -> Iterator[Weight]:
    """Those of the matrices among `rows`, under their names."""
    for row in rows:
        if row.kind not in KINDS or len(row.shape) != 2 or row.name.endswith(".router.weight"):
            continue
        (out, into), name = row.shape, row.name.removesuffix(".weight")
        for side, end, shape in ((1, "lora_a", (rank, into)), (0, "lora_b", (out, rank))):
            cut = side if row.cut == side else None
            units = row.units if cut is not None else None
            yield replace(row, name=f"{name}.{end}", shape=shape, cut=cut, units=units)


class Low(NamedTuple):
    """Low-rank features of a token: those of the projections that read the input of attention, and
    of the MLP. Under sequence parallelism they travel beside that input."""

    attention: int
    mlp: int


def low_rank(model: Model, rank: int) -> Low:
    """Queries, keys and values, or what goes down to latents and up again; the gate beside what it
    gates."""
    attention = 4 if model.mla is not None and model.mla.q_rank is not None else 3
    return Low(attention * rank, (2 if model.activation in GATED else 1) * rank)


def unasked(model: Model) -> int:
    """The inputs of sublayers that no adapter stands before: the first, or those of both halves."""
    return 2 if model.parallel_blocks else 1
