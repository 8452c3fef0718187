"""Which weights a chunk of the pipeline holds, by name."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.layout import Stage
from parlay.compiler.layout.stages import FOLDED
from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.parameters import Weight, WeightTable
from parlay.compiler.spec.blocks import Spec


def table_of(spec: Spec) -> WeightTable:
    """The weight table of a spec, with the vocabulary padded for its tp."""
    assert spec.model is not None
    return parameters.weights(spec.model, vocab_rows=padded_vocab(spec))


def padded_vocab(spec: Spec) -> int:
    """Rows of the embedding once padded to a multiple of `vocab_multiple` · tp."""
    assert spec.model is not None
    parallel = spec.parallel
    return parameters.padded_vocab(
        spec.model.vocab, multiple=parallel.vocab_multiple, tp=parallel.tp
    )


def held_by(spec: Spec, table: WeightTable, chunk: Stage) -> Iterator[Weight]:
    """The weights of one chunk in the model's order; a tied head brings the embedding along."""
    assert spec.model is not None
    if chunk.embedding:
        yield from table.first
    for layer in range(chunk.first, chunk.last + 1):
        yield from table.layer(layer)
    if chunk.head:
        yield from table.further
        yield from table.last
        if chunk.copies_embedding:
            yield from table.copied


def tied_over_stages(spec: Spec) -> bool:
    """Whether the last rank of a pipeline has a copy of the first's embedding; in a V both ends
    are on the first, under DualPipe on the first and on the last."""
    assert spec.model is not None
    parallel = spec.parallel
    tied = spec.model.tied_embeddings and parallel.pp > 1
    return tied and parallel.schedule.name not in (*FOLDED, "dualpipe")
