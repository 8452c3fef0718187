"""Gradients of which several ranks of a replica have a share each, and what sums them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger import units
from parlay.compiler.ledger.held import table_of
from parlay.compiler.ledger.parameters import Weight
from parlay.compiler.spec.blocks import Spec

HEAD_NORMS = ("attention.q_norm", "attention.k_norm")
"""Norms inside of heads: whole on every rank of tp, but each rank sees its own heads alone."""


class Sum(NamedTuple):
    """One all_reduce of gradients over `group` in each step."""

    group: str
    elements: int


def sums(spec: Spec, held: Sequence[Stage]) -> Iterator[Sum]:
    """What a rank of the chunks `held` sums besides norms under sequence parallelism and dp.

    `kv`: tp ranks that hold one key/value head alike. `tp`: norms inside of heads, where no
    sequence parallelism sums them with the others. `embedding`: a tied embedding, on the first
    stage and the last. From ZeRO-2 on a rank has its shard of copies alone.
    """
    parallel = spec.parallel
    assert spec.model is not None
    tp = parallel.tp
    inside = copied = tied = 0
    for weight, times in rows_of(spec, held):
        if weight.cut is None and weight.name.rpartition(".")[0].endswith(HEAD_NORMS):
            inside += times * weight.numel
        if weight.copies(tp=tp) > 1:
            copied += times * weight.on_rank(tp=tp)
        if weight.name == "embedding.weight":
            tied += times * weight.on_rank(tp=tp)
    if inside and tp > 1 and not parallel.sequence_parallel:
        yield Sum("tp", inside)
    sharded = parallel.zero > 1 and parallel.shard > 1
    if copied:
        yield Sum("kv", units.copied(spec, held, "heads") if sharded else copied)
    if tied and spec.model.tied_embeddings and parallel.pp > 1:
        yield Sum("embedding", units.copied(spec, held, "tied") if sharded else tied)


def whole(spec: Spec, held: Sequence[Stage]) -> int:
    """Elements that every rank of tp holds whole: norms, row-side biases, routers.

    Under sequence parallelism each rank sees its own tokens, so that their gradients are summed.
    """
    rows = rows_of(spec, held)
    return sum(t * row.numel for row, t in rows if row.cut is None and not row.expert)


def rows_of(spec: Spec, held: Sequence[Stage]) -> Iterator[tuple[Weight, int]]:
    """The rows of the weight table that a rank of the chunks `held` holds, and how often.

    What `held_by` lists weight by weight, in time that does not grow with the layers.
    """
    table = table_of(spec)
    for chunk in held:
        mixed = 0
        if table.mixture is not None:
            before = table.mixture.layers_before
            mixed = before(chunk.last + 1) - before(chunk.first)
        ends = table.first if chunk.embedding else ()
        if chunk.head:
            ends = (*ends, *table.further, *table.last)
            if not chunk.embedding:
                ends = (*ends, *table.copied)
        yield from ((row, 1) for row in ends)
        for kind in table.kinds:
            number = mixed if kind.experts else chunk.layers - mixed
            if number:
                yield from ((row, number) for row in kind.rows)
