"""What the memory ledger is made of: lines, the moments of a step, and rank classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from parlay.compiler.ledger.parameters import Parameters

CATEGORIES: Final = (
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "gathered",
    "buffers",
    "temporaries",
    "reserve",
)
"""What bytes are for; `optimizer` holds the fp32 master and the moments."""


class Line(NamedTuple):
    """One amount of memory on one rank, with the arithmetic behind it."""

    category: str
    name: str
    value_bytes: int
    formula: str
    source: str


class Part(NamedTuple):
    """Lines that are held together, those without bytes left out, and their sum."""

    lines: tuple[Line, ...]
    value_bytes: int

    @classmethod
    def of(cls, *groups: Iterable[Line]) -> Part:
        """All lines of `groups`."""
        lines = [line for group in groups for line in group if line.value_bytes]
        return cls(tuple(lines), sum([line.value_bytes for line in lines]))

    def beside(self, other: Part) -> Part:
        """Both together."""
        return Part(self.lines + other.lines, self.value_bytes + other.value_bytes)


class Held(Protocol):
    """Lines that are held together, made when they are asked for, and their sum."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """Every amount, with its arithmetic."""

    @property
    def value_bytes(self) -> int:
        """Bytes of all."""


class Moment(NamedTuple):
    """What a rank holds at one moment of a step."""

    name: str
    parts: tuple[Held, ...]
    value_bytes: int

    @classmethod
    def of(cls, name: str, *parts: Held) -> Moment:
        """The moment at which `parts` are held together."""
        value = 0
        for part in parts:
            value += part.value_bytes
        return cls(name, parts, value)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Every amount, with its arithmetic."""
        return tuple(line for part in self.parts for line in part.lines)

    @property
    def categories(self) -> dict[str, int]:
        """Bytes by category, every category named."""
        sums = dict.fromkeys(CATEGORIES, 0)
        for line in self.lines:
            sums[line.category] += line.value_bytes
        return sums


class Counted(NamedTuple):
    """The ranks of one pipeline stage in numbers; see `RankClass`."""

    stage: int
    ranks: int
    held: Parameters
    in_flight: tuple[int, ...]
    peak_bytes: int
    made: Callable[[], Iterable[Moment]]


class RankClass(Counted):
    """The ranks of one pipeline stage: all of them hold the same.

    `held` are the parameters on each, `experts` says whether routed ones are among them,
    `in_flight` how many microbatches of each chunk are held at the forward peak. `peak_bytes` are
    there at the fullest moment, the reserve among them; `made` makes the moments, once they are
    asked for.
    """

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """What is held at each moment of a step."""
        return tuple(self.made())

    @property
    def experts(self) -> bool:
        """Whether the ranks hold routed experts."""
        return self.held.expert > 0

    @cached_property
    def peak(self) -> Moment:
        """The moment with the most bytes."""
        return max(self.moments, key=lambda moment: moment.value_bytes)


class Saved(NamedTuple):
    """What one sublayer keeps of one microbatch for its backward, on one rank.

    `part` is the word of `recompute = selective(…)` that drops it, None where only
    `recompute = full` does; `square` says that it grows with the square of the sequence.
    """

    name: str
    part: str | None
    value_bytes: int
    formula: str
    source: str
    square: bool = False


TRANSFORMER: Final = "arXiv:2205.05198, section 4"
