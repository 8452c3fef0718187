"""What chunks and stages that hold alike have, whatever is in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.memory.chunk import Count, Layers
from parlay.compiler.ledger.memory.ends import end_lines
from parlay.compiler.ledger.memory.record import Line, Moment, Part
from parlay.compiler.ledger.parameters import Parameters

if TYPE_CHECKING:
    from parlay.compiler.ledger.memory.late import Late

SAVED: Final = "the layer's saved tensors"


class Kept(NamedTuple):
    """Chunks that hold alike.

    `held` are the parameters on one rank, `counts` the layers by kind. Of one microbatch:
    `value_bytes` are in those layers, `each_bytes` in them and in the chunk's ends, `words` are
    name, formula and bytes of each kind. `layers` keep more than their input.
    """

    held: Parameters
    counts: tuple[Count, ...]
    value_bytes: int
    each_bytes: int
    words: tuple[tuple[str, str, int], ...]
    layers: int

    @classmethod
    def of(cls, held: Parameters, counts: tuple[Count, ...], ends: Iterable[Line]) -> Kept:
        """The record of chunks with `counts`, whose ends keep `ends` of one microbatch."""
        value = sum(part.value_bytes for part in counts)
        return cls(
            held,
            counts,
            value,
            value + sum(line.value_bytes for line in ends),
            tuple(_words(part) for part in counts if part.value_bytes),
            sum(part.layers - part.again for part in counts),
        )


class Holding(NamedTuple):
    """Stages that hold alike.

    `always` is there at every moment, `update` the moment of the optimizer's step, `behind` what
    runs beside the backward of a stage without embedding and head. `weights` are the bytes of one
    microbatch by chunk, `late` what a split backward has besides, once it is known.
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
    late: list[Late]


class InFlight(NamedTuple):
    """What chunks keep of the microbatches in flight.

    Its lines are made when they are asked for: most ranks of a pipeline are never printed.
    """

    layers: Layers
    chunks: tuple[Stage, ...]
    kept: tuple[Kept, ...]
    flight: tuple[int, ...]

    @property
    def value_bytes(self) -> int:
        """Bytes of all: every line grows with the microbatches."""
        value = 0
        for kept, number in zip(self.kept, self.flight, strict=True):
            value += number * kept.each_bytes
        return value

    @property
    def lines(self) -> tuple[Line, ...]:
        """One for each kind of layer of a chunk, and those of its ends."""
        found = activation_lines(self.layers, self.chunks, self.kept, self.flight)
        return tuple(line for line in found if line.value_bytes)


def activation_lines(
    layers: Layers,
    chunks: Sequence[Stage],
    kept: Sequence[Kept],
    flight: Sequence[int],
    *,
    before_layers: bool = True,
) -> Iterator[Line]:
    """What chunks keep of the microbatches in flight; `before_layers` as in `end_lines`."""
    for chunk, each, number in zip(chunks, kept, flight, strict=True):
        if number <= 0:
            continue
        of_chunk = f" of chunk {chunk.chunk}" if len(chunks) > 1 else ""
        for name, formula, bytes_ in each.words:
            words = f"{number} microbatches x ({formula})" if number > 1 else formula
            yield Line("activations", name + of_chunk, number * bytes_, words, SAVED)
        yield from end_lines(layers, chunk, number, before_layers=before_layers)


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
