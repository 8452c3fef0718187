"""The table of every weight, and what follows from it: totals, and what one rank holds.

The table is exact: the published totals of 35 models come out to the parameter. Layers of one kind
share their rows, so a total costs the same for ten layers as for a thousand; the full listing is
made when it is iterated.

Every function wants a `Model` with a shape. `model { params = 7.5B }` has none: `total` answers
for it, and an even share of that is all there is to say.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from parlay.compiler.ledger import parameters_rows as rows_of
from parlay.compiler.ledger.parameters_weight import KINDS, Weight
from parlay.compiler.spec.blocks import Experts, Model

__all__ = [
    "KINDS",
    "LayerKind",
    "Parameters",
    "Weight",
    "WeightTable",
    "active",
    "by_kind",
    "layer_parameters",
    "matrix_parameters",
    "padded_vocab",
    "padding",
    "stage_parameters",
    "total",
    "weights",
]


class Parameters(NamedTuple):
    """A number of parameters in two parts: those of routed experts are replicated over edp and
    sharded there, the others over dp·cp."""

    dense: int = 0
    expert: int = 0

    @property
    def total(self) -> int:
        """Both parts."""
        return self.dense + self.expert

    def __add__(self, other: object) -> Parameters:
        assert isinstance(other, Parameters)
        return Parameters(self.dense + other.dense, self.expert + other.expert)

    def __mul__(self, times: object) -> Parameters:
        assert isinstance(times, int)
        return Parameters(self.dense * times, self.expert * times)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same weights: their rows, named without `layers.I.`, and how many."""

    experts: bool
    rows: tuple[Weight, ...]
    count: int


@dataclass(frozen=True, slots=True)
class WeightTable:
    """Every weight of a model; iterated, one `Weight` a tensor under its global name.

    `first` stands before the layers, `further` (layers of further tokens) and `last` after them;
    `mixture` says which layers have experts. `copied` is what a last stage that is not also the
    first holds besides: the embedding, where the head is tied or further tokens are predicted.
    `known` keeps what was worked out from it, by question.
    """

    layers: int
    mixture: Experts | None
    first: tuple[Weight, ...]
    kinds: tuple[LayerKind, ...]
    further: tuple[Weight, ...]
    last: tuple[Weight, ...]
    copied: tuple[Weight, ...] = ()
    known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def __iter__(self) -> Iterator[Weight]:
        yield from self.first
        for layer in range(self.layers):
            yield from self.layer(layer)
        yield from self.further
        yield from self.last

    def kind_of(self, layer: int) -> LayerKind:
        """The kind of one layer, counted from 0."""
        experts = self.mixture is not None and self.mixture.holds(layer)
        return next(kind for kind in self.kinds if kind.experts is experts)

    def layer(self, layer: int) -> Iterator[Weight]:
        """The weights of one layer under their global names."""
        for row in self.kind_of(layer).rows:
            yield replace(row, name=f"layers.{layer}.{row.name}", layer=layer)

    def groups(self) -> Iterator[tuple[Weight, int]]:
        """Every row with the number of layers that have it: all that a total needs."""
        for row in self.first:
            yield row, 1
        for kind in self.kinds:
            for row in kind.rows:
                yield row, kind.count
        for row in (*self.further, *self.last):
            yield row, 1


def weights(model: Model, *, vocab_rows: int | None = None) -> WeightTable:
    """The table of `model`, its embedding and head `vocab_rows` high (default: unpadded)."""
    vocab = model.vocab if vocab_rows is None else vocab_rows
    known = _RECENT.get((id(model), vocab))
    if known is not None and known[0] is model:
        return known[1]
    table = _weights(model, vocab)
    if len(_RECENT) >= MOST_RECENT:
        _RECENT.clear()
    _RECENT[id(model), vocab] = model, table
    return table


MOST_RECENT = 32
_RECENT: dict[tuple[int, int], tuple[Model, WeightTable]] = {}
"""The tables of the last models, which a ledger asks for again and again; by identity, since a
model is no key."""


def _weights(model: Model, vocab: int) -> WeightTable:
    mixed = _mixed_layers(model, range(model.layers))
    kinds = (
        LayerKind(False, tuple(rows_of.layer(model, experts=False)), model.layers - mixed),
        LayerKind(True, tuple(rows_of.layer(model, experts=True)) if mixed else (), mixed),
    )
    return WeightTable(
        layers=model.layers,
        mixture=model.experts,
        first=tuple(rows_of.embedding(model, vocab)),
        kinds=tuple(kind for kind in kinds if kind.count),
        further=tuple(rows_of.further_tokens(model)),
        last=tuple(rows_of.head(model, vocab)),
        copied=tuple(_copied(model, vocab)),
    )


def _copied(model: Model, vocab: int) -> Iterator[Weight]:
    if model.tied_embeddings or model.mtp_layers:
        yield rows_of.embedding_table(model, vocab)


# ── Of the whole model ────────────────────────────────────────────────────────


def total(model: Model, *, vocab_rows: int | None = None) -> int:
    """Parameters in all: the sum over the table, or `params` where the model gives no shape."""
    if model.params is not None:
        return model.params
    table = weights(model, vocab_rows=vocab_rows)
    if "total" not in table.known:
        table.known["total"] = sum(row.numel * times for row, times in table.groups())
    return int(table.known["total"])


def active(model: Model) -> int:
    """Parameters that one token visits: of `count` routed experts `top_k`, all else in full.

    Embedding and head are counted, as Mixtral (arXiv:2401.04088) and DeepSeek-V3 count them.
    """
    if model.params is not None:
        return model.params
    table = weights(model)
    if "active" not in table.known:
        table.known["active"] = sum(_visited(model, row) * times for row, times in table.groups())
    return int(table.known["active"])


def matrix_parameters(model: Model, *, vocab_rows: int | None = None) -> int:
    """Parameters that each token is multiplied with: a forward is 2 FLOPs for each of them.

    Matrices of the layers and the head, tied or not; no embedding, position or vector; of the
    routed experts `top_k` (6·N of arXiv:2001.08361 with the head, as PaLM's appendix B counts).
    """
    vocab = model.vocab if vocab_rows is None else vocab_rows
    table = weights(model, vocab_rows=vocab)
    if "matrices" not in table.known:
        table.known["matrices"] = sum(
            _visited(model, row) * times
            for row, times in table.groups()
            if len(row.shape) > 1 and row.kind not in ("embedding", "position", "head")
        )
    return int(table.known["matrices"]) + vocab * model.hidden


def by_kind(model: Model, *, vocab_rows: int | None = None) -> dict[str, int]:
    """Parameters of each kind that the model has, in the order of `KINDS`."""
    sums = dict.fromkeys(KINDS, 0)
    for row, times in weights(model, vocab_rows=vocab_rows).groups():
        sums[row.kind] += row.numel * times
    return {kind: number for kind, number in sums.items() if number}


def _visited(model: Model, row: Weight) -> int:
    if not row.expert or model.experts is None:
        return row.numel
    return row.numel // row.count * min(model.experts.top_k, row.count)


# ── Of a layer, of a stage ────────────────────────────────────────────────────


def layer_parameters(
    model: Model, layer: int, *, tp: int = 1, etp: int = 1, ep: int = 1
) -> Parameters:
    """One layer on one rank of tp (etp and ep for its experts); whole at the defaults."""
    table = weights(model)
    return _of_kind(table, table.kind_of(layer), tp=tp, etp=etp, ep=ep)


def stage_parameters(
    model: Model,
    layers: range,
    *,
    embedding: bool,
    head: bool,
    copied: bool | None = None,
    tp: int = 1,
    etp: int = 1,
    ep: int = 1,
    vocab_rows: int | None = None,
) -> Parameters:
    """What one rank of a pipeline stage holds: the fullest one where a cut is uneven.

    `layers` is contiguous, a chunk of the stage; chunks add up. Cut dimensions are divided by tp,
    vectors that all ranks need are not. The last stage has the layers of further tokens, and a
    second copy of the embedding if it needs one (tied head or further tokens) and is not also
    the first; `copied` says otherwise where another chunk of the rank has the embedding.
    """
    table = weights(model, vocab_rows=vocab_rows)
    mixed = _mixed_layers(model, layers)
    held = Parameters()
    for kind in table.kinds:
        number = mixed if kind.experts else len(layers) - mixed
        if number:
            held += _of_kind(table, kind, tp=tp, etp=etp, ep=ep) * number
    ends: list[Weight] = []
    if embedding:
        ends.extend(table.first)
    if head:
        ends.extend((*table.further, *table.last))
        if not embedding if copied is None else copied:
            ends.extend(table.copied)
    return held + _on_rank(ends, tp=tp, etp=etp, ep=ep)


def _of_kind(table: WeightTable, kind: LayerKind, *, tp: int, etp: int, ep: int) -> Parameters:
    """A layer of a kind on one rank, worked out once."""
    asked = ("on_rank", kind.experts, tp, etp, ep)
    if asked not in table.known:
        table.known[asked] = _on_rank(kind.rows, tp=tp, etp=etp, ep=ep)
    held: Parameters = table.known[asked]
    return held


def _on_rank(rows: Iterable[Weight], *, tp: int, etp: int, ep: int) -> Parameters:
    dense = expert = 0
    for row in rows:
        held = row.on_rank(tp=tp, etp=etp, ep=ep)
        if row.expert:
            expert += held
        else:
            dense += held
    return Parameters(dense, expert)


def _mixed_layers(model: Model, layers: range) -> int:
    if model.experts is None:
        return 0
    return model.experts.layers_before(layers.stop) - model.experts.layers_before(layers.start)


# ── The padded vocabulary ─────────────────────────────────────────────────────


def padded_vocab(vocab: int, *, multiple: int, tp: int) -> int:
    """Rows of the embedding: `vocab` up to the next multiple of `multiple`·tp."""
    step = multiple * tp
    return -(-vocab // step) * step


def padding(model: Model, vocab_rows: int) -> int:
    """Parameters that `vocab_rows` adds to the model's own: no published total has them."""
    return total(model, vocab_rows=vocab_rows) - total(model)
