"""Gradients of which several ranks of a replica have a share each, and what sums them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.held import held_by, table_of
from parlay.compiler.spec.blocks import Spec

HEAD_NORMS = ("attention.q_norm", "attention.k_norm")
"""Norms inside of heads: whole on every rank of tp, but each rank sees its own heads alone."""


class Sum(NamedTuple):
    """One all_reduce of gradients over `group` in each step."""

    group: str
    elements: int


def sums(spec: Spec, held: list[Stage]) -> Iterator[Sum]:
    """What a rank of the chunks `held` sums besides norms under sequence parallelism and dp.

    `kv`: tp ranks that hold one key/value head alike. `tp`: norms inside of heads, where no
    sequence parallelism sums them with the others. `embedding`: a tied embedding, on the first
    stage and the last.
    """
    parallel, table = spec.parallel, table_of(spec)
    assert spec.model is not None
    weights = [weight for chunk in held for weight in held_by(spec, table, chunk)]
    tp = parallel.tp
    if tp > 1 and not parallel.sequence_parallel:
        inside = sum(
            weight.numel
            for weight in weights
            if weight.cut is None and weight.name.rpartition(".")[0].endswith(HEAD_NORMS)
        )
        if inside:
            yield Sum("tp", inside)
    copied = sum(weight.on_rank(tp=tp) for weight in weights if weight.copies(tp=tp) > 1)
    if copied:
        yield Sum("kv", copied)
    if spec.model.tied_embeddings and parallel.pp > 1:
        tied = sum(w.on_rank(tp=tp) for w in weights if w.name == "embedding.weight")
        if tied:
            yield Sum("embedding", tied)
