"""Weights in units, each gathered and reduced on its own (ZeRO-2 and 3), as `runtime/units.py` cuts
them: what stands before the layers, each layer, what stands behind them.

A rank owns an equal share of each unit, which is padded for it; copies, weights that several ranks
of a replica hold alike, are padded on their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.adapters import rank_of
from parlay.compiler.ledger.held import table_of, tied_over_stages
from parlay.compiler.ledger.parameters import Weight
from parlay.compiler.spec.blocks import Spec


class Unit(NamedTuple):
    """Elements on one rank of tp: what a replica holds once, and copies by kind."""

    once: int
    heads: int = 0
    tied: int = 0

    def padded(self, ranks: int) -> int:
        """Elements that travel."""
        return sum(-(-part // ranks) * ranks for part in self)


class Sent(NamedTuple):
    """Messages of so many elements together."""

    calls: int
    elements: int

    def __add__(self, other: object) -> Sent:
        assert isinstance(other, Sent)
        return Sent(self.calls + other.calls, self.elements + other.elements)


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one chunk, in the order of a forward; `layers` by kind, with their number."""

    first: Unit | None
    layers: tuple[tuple[Unit, int], ...]
    last: Unit | None

    def all(self) -> Iterator[tuple[Unit, int]]:
        """Each unit and how often there is one."""
        ends = [(unit, 1) for unit in (self.first, self.last) if unit is not None]
        yield from (*ends, *self.layers)


def units_of(spec: Spec, chunk: Stage) -> Units:
    """The units of one chunk, of dense weights alone."""
    table = table_of(spec)
    mixed = 0
    if table.mixture is not None:
        before = table.mixture.layers_before
        mixed = before(chunk.last + 1) - before(chunk.first)
    numbers = [(kind, mixed if kind.experts else chunk.layers - mixed) for kind in table.kinds]
    last: tuple[Weight, ...] = ()
    if chunk.head:
        last = (*table.further, *table.last, *(table.copied if chunk.copies_embedding else ()))
    return Units(
        _unit(spec, table.first if chunk.embedding else ()),
        tuple((unit, n) for kind, n in numbers if n and (unit := _unit(spec, kind.rows))),
        _unit(spec, last),
    )


def _unit(spec: Spec, rows: Iterable[Weight]) -> Unit | None:
    """The unit of some weights; None where there are none."""
    tp, tied = spec.parallel.tp, tied_over_stages(spec)
    parts: Counter[str] = Counter()
    for row in rows:
        if not row.expert:
            kind = "heads" if row.copies(tp=tp) > 1 else "once"
            kind = "tied" if tied and row.name == "embedding.weight" else kind
            parts[kind] += row.on_rank(tp=tp)
    return Unit(parts["once"], parts["heads"], parts["tied"]) if parts else None


# ── What travels ──────────────────────────────────────────────────────────────


def reduced(spec: Spec, held: Sequence[Stage]) -> Sent:
    """Every unit once: the gradients of a microbatch, the weights after an update of ZeRO-2."""
    ranks, sent = spec.parallel.shard, Sent(0, 0)
    for chunk in held:
        for unit, times in units_of(spec, chunk).all():
            sent += Sent(times, times * unit.padded(ranks))
    return sent


def gathered(spec: Spec, held: Sequence[Stage]) -> Sent:
    """The weights that a microbatch gathers under ZeRO-3, forward and backward.

    Each unit twice. A tied embedding of one stage twice, too: for its own forward, and for the
    head's forward and backward together; once more for its own backward where that ends in a norm.
    """
    assert spec.model is not None
    ranks, sent = spec.parallel.shard, Sent(0, 0)
    # What stands before the layers has no backward where it is frozen.
    own = 1 if rank_of(spec) is not None else 2
    for chunk in held:
        units = units_of(spec, chunk)
        tied = spec.model.tied_embeddings and chunk.embedding and chunk.head
        ends = [(units.first, own), (units.last, 2)]
        if tied:
            own = own if spec.model.embedding_norm else 1
            ends = [(units.first, own + 1), (units.last, 1)]
        if spec.model.tied_embeddings and chunk.beside_embedding:
            # The head of a V reads the first stage's table, forward and backward.
            ends.append((units_of(spec, _embedding_of(held)).first, 2))
        for unit, times in (*ends, *((unit, 2 * number) for unit, number in units.layers)):
            if unit is not None:
                sent += Sent(times, times * unit.padded(ranks))
    return sent


def _embedding_of(held: Sequence[Stage]) -> Stage:
    return next(chunk for chunk in held if chunk.embedding)


class Traffic(NamedTuple):
    """What a rank sends of its units in a microbatch, and how many elements of them it owns."""

    reduced: Sent
    gathered: Sent
    owned: int


def traffic(spec: Spec, held: Sequence[Stage]) -> Traffic:
    """The units of the chunks of a rank; what they are padded with is among what it owns."""
    each = reduced(spec, held)
    return Traffic(each, gathered(spec, held), each.elements // spec.parallel.shard)


def expert_traffic(spec: Spec, held: Sequence[Stage], ranks: int) -> Traffic | None:
    """The same of routed experts, a unit in each layer that has some, over the `ranks` of edp; None
    where there are none, or where a rank owns all that it holds."""
    table, parallel = table_of(spec), spec.parallel
    if table.mixture is None or ranks == 1:
        return None
    before = table.mixture.layers_before
    layers = sum(before(chunk.last + 1) - before(chunk.first) for chunk in held)
    rows = [row for kind in table.kinds if kind.experts for row in kind.rows if row.expert]
    numel = sum(row.on_rank(etp=parallel.etp, ep=parallel.ep) for row in rows)
    each = Sent(layers, layers * -(-numel // ranks) * ranks)
    return Traffic(each, each + each, each.elements // ranks)


def copied(spec: Spec, held: Sequence[Stage], kind: str) -> int:
    """Elements that a rank owns of the copies of `kind`, `heads` or `tied`."""
    ranks, parts = spec.parallel.shard, 0
    for chunk in held:
        for unit, times in units_of(spec, chunk).all():
            parts += times * -(-getattr(unit, kind) // ranks)
    return parts
