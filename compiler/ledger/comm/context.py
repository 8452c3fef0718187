"""Shared numbers of one job's messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.communication import (
    BYTES,
    Dtypes,
    dtypes_of,
    microbatches,
    recomputed_layers,
)
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.time import efficiency
from parlay.compiler.spec.blocks import Model, Parallel, Spec, Train


@dataclass
class Job:
    """A spec with a shape and a recipe, and its layout."""

    spec: Spec
    layout: Layout

    @property
    def parallel(self) -> Parallel:
        """The degrees."""
        return self.spec.parallel

    @cached_property
    def model(self) -> Model:
        """The shape."""
        assert self.spec.model is not None
        return self.spec.model

    @cached_property
    def train(self) -> Train:
        """The recipe."""
        assert self.spec.train is not None
        return self.spec.train

    @cached_property
    def dtypes(self) -> Dtypes:
        """The dtypes by their torch names."""
        return dtypes_of(self.spec)

    @cached_property
    def width(self) -> int:
        """Bytes of a compute element."""
        return BYTES[self.dtypes.compute]

    @cached_property
    def microbatches(self) -> int:
        """Microbatches of one step on one replica."""
        return max(1, microbatches(self.spec))

    @cached_property
    def tokens(self) -> int:
        """Tokens of one microbatch on one rank: b·s/cp."""
        return self.train.micro_batch * self.train.seq // self.parallel.cp

    @cached_property
    def cut(self) -> int:
        """How many ranks of tp share the residual stream."""
        return self.parallel.tp if self.parallel.sequence_parallel else 1

    @cached_property
    def vocab(self) -> int:
        """Rows of the padded embedding."""
        return padded_vocab(self.spec)

    @cached_property
    def stops_early(self) -> bool:
        """Whether a recomputed layer ends at its last saved tensor, as PyTorch's checkpoint does.

        The MLP's last sum is then not sent again, but where a norm stands behind it.
        """
        return efficiency.of(self.spec).early_stop

    @cached_property
    def flat(self) -> bool:
        """Whether the optimizer's shards are cut from one buffer, in one message: our own code."""
        return self.train.stack == "parlay"

    def again(self, chunk: Stage) -> tuple[int, int]:
        """Layers of a chunk that are computed again as a whole, and those of them with experts."""
        layers = recomputed_layers(self.train.recompute, chunk.layers)
        experts = self.model.experts
        if experts is None or not layers:
            return layers, 0
        if layers == chunk.layers:
            return layers, self.mixed(chunk)
        step = self.train.recompute.get("every") or 1
        some = range(chunk.first, chunk.first + layers * step, step)
        return layers, sum(experts.holds(layer) for layer in some)

    def repeats(self, sublayer: str) -> bool:
        """Whether selective recompute names a sublayer, the attention's core by default."""
        recompute = self.train.recompute
        flags = recompute.flags or ("core_attention",)
        return recompute.name == "selective" and sublayer in flags

    def mixed(self, chunk: Stage) -> int:
        """Layers of a chunk that have experts."""
        experts = self.model.experts
        if experts is None:
            return 0
        return experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
