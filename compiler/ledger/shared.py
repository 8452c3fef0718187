"""Gradients of which several ranks of a replica have a share each, and what sums them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger import units
from parlay.compiler.ledger.adapters import adapters, fused, rank_of
from parlay.compiler.ledger.held import table_of, tied_over_stages
from parlay.compiler.ledger.parameters import Parameters, Weight, WeightTable
from parlay.compiler.spec.blocks import Spec

HEAD_NORMS = ("attention.q_norm", "attention.k_norm")
"""Norms inside of heads: whole on every rank of tp, but each rank sees its own heads alone."""


class Sum(NamedTuple):
    """One all_reduce of gradients over `group` in each step."""

    group: str
    elements: int


class Shared(NamedTuple):
    """Elements on one rank of tp: norms inside of heads, key/value heads that several ranks hold
    alike, tied embeddings, and all that every rank of tp holds whole."""

    inside: int
    copied: int
    tied: int
    whole: int


def sums(spec: Spec, held: Sequence[Stage], found: Shared | None = None) -> Iterator[Sum]:
    """What a rank of the chunks `held` sums besides norms under sequence parallelism and dp.

    `kv`: tp ranks that hold one key/value head alike. `tp`: norms inside of heads, where no
    sequence parallelism sums them with the others. `embedding`: a tied embedding, on the first
    stage and the last. From ZeRO-2 on a rank has its shard of copies alone, but for adapters,
    whose gradients are whole until the step ends.
    """
    parallel = spec.parallel
    assert spec.model is not None
    found = shared_of(spec, held) if found is None else found
    if found.inside and parallel.tp > 1 and not parallel.sequence_parallel:
        yield Sum("tp", found.inside)
    sharded = parallel.zero > 1 and parallel.shard > 1 and rank_of(spec) is None
    if found.copied:
        yield Sum("kv", units.copied(spec, held, "heads") if sharded else found.copied)
    if found.tied and tied_over_stages(spec):
        yield Sum("embedding", units.copied(spec, held, "tied") if sharded else found.tied)


def whole(spec: Spec, held: Sequence[Stage]) -> int:
    """Elements that every rank of tp holds whole: norms, row-side biases, routers.

    Under sequence parallelism each rank sees its own tokens, so that their gradients are summed.
    """
    return shared_of(spec, held).whole


def partial(spec: Spec) -> bool:
    """Whether ranks of tp have a share each of the gradients of what they hold whole: of a piece
    of the sequence, or, of adapters, of their side of what is cut."""
    return spec.parallel.sequence_parallel or rank_of(spec) is not None


def shared_of(spec: Spec, held: Sequence[Stage]) -> Shared:
    """What ranks of a replica share of the chunks `held`."""
    table, tp, rank = table_of(spec), spec.parallel.tp, rank_of(spec)
    low, known = rank if rank is None else (rank, fused(spec)), table.known
    inside = copied = tied = whole = 0
    for name, rows, times in _sections(table, held):
        asked = ("shared", name, tp, low)
        if asked not in known:
            trains = rows if low is None else tuple(adapters(rows, *low))
            known[asked] = _shared(trains, tp)
        each: Shared = known[asked]
        inside += times * each.inside
        copied += times * each.copied
        tied += times * each.tied
        whole += times * each.whole
    return Shared(inside, copied, tied, whole)


def _rank(spec: Spec) -> tuple[int, tuple[str, ...] | None] | None:
    """The rank of adapters, and which share a side (`fused`); None where all is trained."""
    rank = rank_of(spec)
    return None if rank is None else (rank, fused(spec))


def _shared(rows: Sequence[Weight], tp: int) -> Shared:
    inside = copied = tied = whole = 0
    # Norms of latents stand before the heads: their gradients are the same on every rank.
    latent = any(row.name.endswith("attention.kv_norm.weight") for row in rows)
    for row in rows:
        if row.cut is None and not row.expert:
            whole += row.numel
        inner = not latent and row.name.rpartition(".")[0].endswith(HEAD_NORMS)
        if row.cut is None and inner:
            inside += row.numel
        if row.copies(tp=tp) > 1:
            copied += row.on_rank(tp=tp)
        if row.name == "embedding.weight":
            tied += row.on_rank(tp=tp)
    return Shared(inside, copied, tied, whole)


def trained(spec: Spec, held: Sequence[Stage]) -> Iterator[tuple[Weight, int]]:
    """Those that are trained of the rows of the chunks `held`, and how often: all, or adapters."""
    rank = _rank(spec)
    for row, times in rows_of(spec, held):
        for each in (row,) if rank is None else adapters((row,), *rank):
            yield each, times


def trained_parameters(spec: Spec, held: Sequence[Stage]) -> Parameters:
    """What a rank trains of the chunks `held`, dense weights alone where it has adapters."""
    tp = spec.parallel.tp
    return Parameters(sum(n * row.on_rank(tp=tp) for row, n in trained(spec, held)))


def adapters_of(spec: Spec) -> int | None:
    """Parameters of all adapters of a model; None where it has none, or no shape."""
    rank, model = _rank(spec), spec.model
    if rank is None or model is None or model.layers is None:
        return None
    groups = table_of(spec).groups()
    return sum(times * one.numel for row, times in groups for one in adapters((row,), *rank))


def rows_of(spec: Spec, held: Sequence[Stage]) -> Iterator[tuple[Weight, int]]:
    """The rows of the weight table that a rank of the chunks `held` holds, and how often.

    What `held_by` lists weight by weight, in time that does not grow with the layers.
    """
    for _, rows, times in _sections(table_of(spec), held):
        for row in rows:
            yield row, times


def _sections(
    table: WeightTable, held: Sequence[Stage]
) -> Iterator[tuple[str, tuple[Weight, ...], int]]:
    """The parts of the table that the chunks `held` have, by name, and how often."""
    for chunk in held:
        if chunk.embedding:
            yield "first", table.first, 1
        if chunk.head:
            yield "further", table.further, 1
            yield "last", table.last, 1
            if chunk.copies_embedding:
                yield "copied", table.copied, 1
        mixed = 0
        if table.mixture is not None:
            before = table.mixture.layers_before
            mixed = before(chunk.last + 1) - before(chunk.first)
        for kind in table.kinds:
            number = mixed if kind.experts else chunk.layers - mixed
            if number:
                yield "experts" if kind.experts else "layers", kind.rows, number
