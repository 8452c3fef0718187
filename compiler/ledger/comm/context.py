"""Shared numbers of one job's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.recipe import BYTES, dtypes_of, passes, recomputed_layers
from parlay.compiler.ledger.time import efficiency
from parlay.compiler.spec.blocks import Spec


class Load(NamedTuple):
    """What a microbatch passes on one rank: layers, those of them with experts (`mixed`), those
    that are computed again as a whole and how many of these have experts (`routed`), and how many
    embeddings and heads."""

    layers: int
    mixed: int
    again: int
    routed: int
    embedding: int
    head: int


class Job:
    """A spec with a shape and a recipe, and its layout.

    `width` is the bytes of a compute element, `tokens` b·s/cp those of one microbatch on one rank,
    `microbatches` those that pass a chunk,
    `cut` how many ranks of tp share the residual stream, `vocab` the rows of the padded embedding.
    `stops_early` says that a recomputed layer ends at its last saved tensor, as PyTorch's
    checkpoint does: the MLP's last sum is then not sent again, but where a norm stands behind it.
    `flat` says that the optimizer's shards are cut from one buffer, in one message: our own code.
    """

    def __init__(self, spec: Spec, layout: Layout) -> None:
        model, train, parallel = spec.model, spec.train, spec.parallel
        assert model is not None and train is not None
        self.spec, self.layout = spec, layout
        self.model, self.train, self.parallel = model, train, parallel
        self.dtypes = dtypes_of(spec)
        self.width = BYTES[self.dtypes.compute]
        self.microbatches = max(1, passes(spec))
        self.tokens = train.micro_batch * train.seq // parallel.cp
        self.cut = parallel.tp if parallel.sequence_parallel else 1
        self.vocab = padded_vocab(spec)
        self.stops_early = efficiency.of(spec).early_stop
        self.flat = train.stack == "parlay"

    def load(self, chunk: Stage) -> Load:
        """What a microbatch passes in one chunk."""
        layers, mixed, experts = chunk.layers, 0, self.model.experts
        if experts is not None:
            mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
        again = recomputed_layers(self.train.recompute, layers)
        routed = mixed if again == layers else 0
        if experts is not None and 0 < again < layers:
            step = self.train.recompute.get("every") or 1
            some = range(chunk.first, chunk.first + again * step, step)
            routed = sum(experts.holds(layer) for layer in some)
        return Load(layers, mixed, again, routed, chunk.embedding, chunk.head)

    def repeats(self, sublayer: str) -> bool:
        """Whether selective recompute names a sublayer, the attention's core by default."""
        recompute = self.train.recompute
        if recompute.name != "selective":
            return False
        return sublayer in (recompute.flags or ("core_attention",))


def together(loads: Sequence[Load]) -> Load:
    """What a microbatch passes in several chunks of one rank."""
    if len(loads) == 1:
        return loads[0]
    return Load(*map(sum, zip(*loads, strict=True)))
