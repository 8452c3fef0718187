"""Low-rank adapters (LoRA, arXiv:2106.09685): on every projection of attention and of the MLPs that
each token passes; routed experts, whose matrices are stacked, have none, nor has their router.

Of a matrix o × i there are `lora_a`, rank × i, and `lora_b`, o × rank. tp cuts the side that it
cuts of the matrix; the other is whole on every rank. NeMo and Megatron-Bridge cut both: `lora_a` of
what is cut by outputs by its rank, `lora_b` of what is cut by inputs by its outputs
(`ParallelLinearAdapter`). Nothing else is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from parlay.compiler.ledger.parameters import Weight
from parlay.compiler.spec.blocks import GATED, Model, Spec, Train

KINDS = ("attention", "mlp", "shared_experts")
"""The kinds of the matrices that have adapters."""
PARALLEL = ("megatron", "nemo", "bridge")
"""Stacks whose adapters are linears over tp of their own, both sides cut."""


def rank_of(spec: Spec) -> int | None:
    """The rank of the adapters; None where all weights are trained."""
    train = spec.train
    return None if train is None or train.lora is None else train.lora["rank"]


def cuts_both(train: Train) -> bool:
    """Whether tp cuts both sides of an adapter, by whose software is priced."""
    return train.stack.partition("-")[0] in PARALLEL


def fused(spec: Spec) -> tuple[str, ...] | None:
    """Ends of the names of matrices that share the `lora_a` of another, where adapters are of fused
    linears with both sides cut: keys and values, what a gate gates. None in the emitted code."""
    model, train = spec.model, spec.train
    if model is None or train is None or not cuts_both(train):
        return None
    return ("attention.k", "attention.v", *((".up",) if model.activation in GATED else ()))


def adapters(
    rows: Iterable[Weight], rank: int, shared: tuple[str, ...] | None = None
) -> Iterator[Weight]:
    """Those of the matrices among `rows`, under their names; `shared` as `fused` says."""
    for row in rows:
        if row.kind not in KINDS or len(row.shape) != 2 or row.name.endswith(".router.weight"):
            continue
        (out, into), name = row.shape, row.name.removesuffix(".weight")
        for side, end, shape in ((1, "lora_a", (rank, into)), (0, "lora_b", (out, rank))):
            if shared is not None and side and name.endswith(shared):
                continue
            same = row.cut == side
            cut = side if same else None if shared is None else 0
            units = row.units if same else None
            yield replace(row, name=f"{name}.{end}", shape=shape, cut=cut, units=units)


class Low(NamedTuple):
    """Low-rank features of a token: those of the projections that read the input of attention, and
    of the MLP. Under sequence parallelism they travel beside that input."""

    attention: int
    mlp: int


def low_rank(model: Model, rank: int, *, together: bool = False) -> Low:
    """Queries, keys and values, or what goes down to latents and up again; the gate beside what it
    gates. One for all of them where they are fused (`together`)."""
    if model.mla is not None:
        attention = 4 if model.mla.q_rank is not None else 3
    else:
        attention = 1 if together else 3
    return Low(attention * rank, (2 if model.activation in GATED and not together else 1) * rank)


class Linear(NamedTuple):
    """A linear with an adapter: the half of the layer, what tp cuts (`column` its outputs, `row`
    its inputs, `whole` nothing), and its features over all ranks."""

    part: str
    side: str
    into: int
    out: int


def linears(model: Model, ffn: int, *, together: bool, inputs: bool = False) -> Iterator[Linear]:
    """Those of one layer whose MLP is `ffn` wide (0: it has none); `together` as `low_rank` says.

    With `inputs` those alone that make queries, keys and values.
    """
    hidden, mla = model.hidden, model.mla
    if mla is None:
        inner, each = model.heads * model.head_dim, model.kv_heads * model.head_dim
        widths = (inner + 2 * each,) if together else (inner, each, each)
        yield from (Linear("attention", "column", hidden, width) for width in widths)
    else:
        inner, query = model.heads * mla.v_dim, model.heads * (mla.nope_dim + mla.rope_dim)
        yield Linear("attention", "whole", hidden, mla.kv_rank + mla.rope_dim)
        if mla.q_rank is not None:
            yield Linear("attention", "whole", hidden, mla.q_rank)
        yield Linear("attention", "column", mla.q_rank or hidden, query)
        yield Linear("attention", "column", mla.kv_rank, inner + model.heads * mla.nope_dim)
    if inputs:
        return
    yield Linear("attention", "row", inner, hidden)
    if ffn:
        first = 2 if model.activation in GATED else 1
        for width in (first * ffn,) if together else (ffn,) * first:
            yield Linear("mlp", "column", hidden, width)
        yield Linear("mlp", "row", ffn, hidden)


class Message(NamedTuple):
    """What adapters of a half of the layer send over tp: features of each token, how often forward
    and backward."""

    part: str
    collective: str
    features: int
    forward: int
    backward: int


def messages(
    model: Model, rank: int, ffn: int, *, sequence: bool, together: bool, inputs: bool = False
) -> Iterator[Message]:
    """Those of one layer, whatever else it sends; the other words as `linears` has them.

    In the emitted code low-rank features travel beside what is gathered under sequence parallelism.
    Where both sides are cut (`together`) a column side's features are gathered and a row side's
    summed, the gradients of either summed; what a row side adds is gathered, and under sequence
    parallelism its gradient; without that the gradient of a column side's input is summed once
    more.
    """
    if not together:
        if sequence:
            for part, features in zip(("attention", "mlp"), low_rank(model, rank), strict=True):
                if part == "attention" or (ffn and not inputs):
                    yield Message(part, "all_gather", features, 1, 0)
                    yield Message(part, "reduce_scatter", features, 0, 1)
        return
    for one in linears(model, ffn, together=True, inputs=inputs):
        first = "all_reduce" if one.side == "row" else "all_gather"
        yield Message(one.part, first, rank, 1, 0)
        yield Message(one.part, "all_reduce", rank, 0, 1)
        if one.side != "column":
            yield Message(one.part, "all_gather", one.out, 1, int(sequence and one.side == "row"))
        elif not sequence:
            yield Message(one.part, "all_reduce", one.into, 0, 1)


def unasked(model: Model) -> int:
    """The inputs of sublayers that no adapter stands before: the first, or those of both halves."""
    return 2 if model.parallel_blocks else 1
