"""What one chunk of layers keeps of one microbatch, under the asked recompute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.memory import operators
from parlay.compiler.ledger.memory.layer import layer
from parlay.compiler.ledger.memory.record import Saved
from parlay.compiler.ledger.memory.sizes import Sizes


@dataclass(frozen=True, slots=True)
class LayerKept:
    """One layer of one kind: its saved tensors, what is kept, and what the backward makes again.

    `kept_bytes` is under the recompute that is asked for, `input_bytes` under a full one,
    `whole_bytes` without any.
    """

    experts: bool
    saved: tuple[Saved, ...]
    kept_bytes: int
    input_bytes: int
    whole_bytes: int


class Count(NamedTuple):
    """Layers of a chunk by kind and by whether they are computed again whole."""

    layer: LayerKept
    layers: int
    again: int

    @property
    def value_bytes(self) -> int:
        """Bytes of one microbatch in them."""
        kept = self.layer
        return self.again * kept.input_bytes + (self.layers - self.again) * kept.kept_bytes


class Layers:
    """The kinds of layers of a model, each worked out once."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    @cached_property
    def dense(self) -> LayerKept:
        """A layer with the plain MLP."""
        return self._kept(experts=False)

    @cached_property
    def mixed(self) -> LayerKept:
        """A layer with experts."""
        return self._kept(experts=True)

    def _kept(self, *, experts: bool) -> LayerKept:
        saved = layer(self.sizes, experts=experts)
        recompute = self.sizes.train.recompute
        flags: frozenset[str] = frozenset()
        if recompute.name == "selective":
            flags = frozenset(recompute.flags or ("core_attention",))
        kept = sum(
            row.value_bytes
            for row in saved
            if row.part is None or flags.isdisjoint(row.part.split())
        )
        if self.sizes.stack.operators and recompute.name == "selective" and not recompute.flags:
            kept = operators.kept_bytes(self.sizes, experts=experts)
        return LayerKept(
            experts,
            saved,
            kept,
            self.sizes.stream()[0],
            sum(row.value_bytes for row in saved),
        )

    def counts(self, chunk: Stage) -> tuple[Count, ...]:
        """The layers of a chunk by kind; `full(first)` and `full(every)` count from its start."""
        recompute = self.sizes.train.recompute
        whole = range(chunk.first, chunk.last + 1)
        again: Iterable[int] = ()
        if recompute.name == "full":
            first, every = recompute.get("first"), recompute.get("every")
            again = whole[:first] if first is not None else whole[:: every or 1]
        parts = []
        experts = self.sizes.model.experts
        mixed = 0 if experts is None else experts.layers_before(whole.stop)
        mixed -= 0 if experts is None else experts.layers_before(whole.start)
        if mixed in (0, len(whole)):
            number = len(again) if isinstance(again, range) else 0
            return (Count(self.mixed if mixed else self.dense, len(whole), number),)
        assert experts is not None
        behind = sum(experts.holds(index) for index in again)
        number = len(again) if isinstance(again, range) else 0
        parts.append(Count(self.dense, len(whole) - mixed, number - behind))
        parts.append(Count(self.mixed, mixed, behind))
        return tuple(parts)
