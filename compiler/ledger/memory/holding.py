"""What chunks and stages that hold alike have, whatever is in flight."""

from __future__ import annotations

from typing import NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.memory.chunk import Count
from parlay.compiler.ledger.memory.record import Line, Moment, Part
from parlay.compiler.ledger.parameters import Parameters


class Kept(NamedTuple):
    """Chunks that hold alike.

    `held` are the parameters on one rank, `counts` the layers by kind. Of one microbatch:
    `value_bytes` are in those layers, `words` are name, formula and bytes of each kind, `beside` is
    what a chunk without embedding and head keeps besides. `layers` keep more than their input.
    """

    held: Parameters
    counts: tuple[Count, ...]
    value_bytes: int
    words: tuple[tuple[str, str, int], ...]
    layers: int
    beside: tuple[Line, ...]
    ends: bool

    @classmethod
    def of(
        cls, held: Parameters, counts: tuple[Count, ...], beside: tuple[Line, ...], *, ends: bool
    ) -> Kept:
        """The record of chunks with `counts`."""
        return cls(
            held,
            counts,
            sum(part.value_bytes for part in counts),
            tuple(_words(part) for part in counts if part.value_bytes),
            sum(part.layers - part.again for part in counts),
            tuple(line for line in beside if line.value_bytes),
            ends,
        )


class Holding(NamedTuple):
    """Stages that hold alike.

    `always` is there at every moment, `update` the moment of the optimizer's step, `behind` what
    runs beside the backward of a stage without embedding and head. `weights` are the bytes of one
    microbatch by chunk, `moments` those that are known, by what is in flight.
    """

    chunks: tuple[Stage, ...]
    kept: tuple[Kept, ...]
    weights: tuple[int, ...]
    held: Parameters
    always: Part
    update: Moment
    behind: Part
    receives: bool
    ends: bool
    moments: dict[tuple[int, ...], tuple[Moment, ...]]


def _words(part: Count) -> tuple[str, str, int]:
    """Name, formula and bytes of what layers keep of one microbatch."""
    kept = part.layer
    terms = [
        f"{layers} x {each}"
        for layers, each in (
            (part.layers - part.again, kept.kept_bytes),
            (part.again, kept.input_bytes),
        )
        if layers
    ]
    name = f"{part.layers} {'expert' if kept.experts else 'dense'} layers"
    return name, " + ".join(terms), part.value_bytes
