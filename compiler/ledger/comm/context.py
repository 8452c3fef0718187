"""Shared numbers of one job's messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.communication import BYTES, Dtypes, dtypes_of, microbatches
from parlay.compiler.ledger.held import padded_vocab, table_of
from parlay.compiler.ledger.parameters import WeightTable
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
    def table(self) -> WeightTable:
        """Every weight."""
        return table_of(self.spec)

    @cached_property
    def recomputes(self) -> bool:
        """Whether whole layers are computed again, their forward's messages with them."""
        return self.train.recompute.name == "full"

    def mixed(self, chunk: Stage) -> int:
        """Layers of a chunk that have experts."""
        experts = self.model.experts
        if experts is None:
            return 0
        return experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
