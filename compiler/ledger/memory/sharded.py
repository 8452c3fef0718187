"""What ZeRO 2 and 3 hold besides the shards: gathered layers, and gradients before they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from parlay.compiler.ledger.memory.record import Line

FSDP = "arXiv:2304.11277, section 3"

Lines = tuple[Line, ...]


class Passing(NamedTuple):
    """What is whole for a while, by the moment of a step."""

    loss: Lines
    head: Lines
    layers: Lines
    embedding: Lines


@dataclass(frozen=True, slots=True)
class Passed:
    """Sizes of one rank: parameters of its largest layer, of embedding or head, and of a head whose
    gradients leave before those of the layers; `again` says that an embedding is gathered for its
    backward; `each` is the bytes of a gradient, `width` those of a gathered weight."""

    zero: int
    layer: int
    end: int
    head: int
    again: bool
    width: int
    each: float
    ranks: int

    def passing(self, *, traced: bool) -> Passing:
        """Moment by moment, as the emitted code has it where `traced`: its gradients travel while
        those of the next unit come about, and what arrives has room of its own. Of others, two
        layers, or an end and a layer, and one layer's gradients."""
        layer, end = self.layer, self.end
        if not traced:
            first, second = (end, layer) if end > layer else (layer, layer)
            gathered = self.gathered(first, second)
            now = (*gathered, *self.unreduced(layer))
            return Passing(gathered, gathered, now, now)
        if self.ranks == 1:
            return Passing((), (), (), ())
        return Passing(
            # The backward of the loss has the last layer gathered beside the head.
            self.gathered(end, layer),
            (*self.gathered(end, layer), *self.unreduced(self.head)),
            (*self.gathered(layer, layer), *self.unreduced(layer, max(layer, self.head))),
            (*(self.gathered(end) if self.again else ()), *self.unreduced(end, layer)),
        )

    def gathered(self, *units: int) -> Lines:
        """With ZeRO 3, the weights in use and the next ones."""
        if self.zero < 3:
            return ()
        formula = f"{self.width} x ({' + '.join(map(str, units))})"
        value, name = self.width * sum(units), "gathered weights, the next prefetched"
        return (Line("gathered", name, value, formula, FSDP),)

    def unreduced(self, unit: int, before: int = 0) -> Lines:
        """With ZeRO 2 and 3, a unit's gradients, and those of the one before it on their way."""
        if self.zero < 2 or not self.each:
            return ()
        value, formula = self.each * unit, f"{self.each:g} x {unit}"
        name = "one layer's gradients before they leave"
        if before:
            value += self.each * (before + -(-before // self.ranks))
            formula += f" + {self.each:g} x {before} x (1 + 1/{self.ranks})"
            name = "two units' gradients before they leave"
        return (Line("buffers", name, int(value), formula, FSDP),)
