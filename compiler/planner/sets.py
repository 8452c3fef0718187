"""Sets of layouts on their way to single ones: what they have in common, closer step by step.

A grid is a stem with its schedule, a core a grid with its microbatch and recompute, a cut one
layout. Each says what is chosen in it (`parts`), which lists are not (`left`), and how many layouts
that leaves (`number`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.memory import Memory
from parlay.compiler.ledger.memory.states import Shards
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.planner.line import Line
from parlay.compiler.planner.stem import Choices, Stem, Values
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.schema import Setting


class Bound(NamedTuple):
    """A step takes at least so many seconds, its fullest rank at least so many bytes."""

    seconds: float
    bytes: int


class Work(NamedTuple):
    """A microbatch and what is computed again: `number` is its place among all that were met."""

    number: int
    chosen: Values
    micro_batch: int
    recompute: Setting


class Way(NamedTuple):
    """An order of a stem: `wires` are told apart by how far the groups reach that layers talk over.

    `layout` has those groups alone; None where the order makes no grid, or has tp too far apart.
    """

    order: Values
    layout: Layout | None
    wires: tuple[Any, ...]


class Place(NamedTuple):
    """An order and a state on a stem: where ranks stand, and how state is cut over them."""

    order: Values
    state: Values
    zero: int
    shards: Shards
    layout: Layout


class Refused(NamedTuple):
    """`number` places fall by a code, those of `chosen`."""

    code: str
    chosen: Values
    number: int
    left: tuple[Choices, ...]


class Placed(NamedTuple):
    """The places of one order, and those that a rule refuses."""

    places: tuple[Place, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True)
class Grid:
    """A stem with its schedule: what all layouts on it share; `held` are rank 0's parameters."""

    stem: Stem
    chosen: Values
    schedule: Values
    spec: Spec
    line: Line
    held: Parameters

    def microbatches(self, work: Work) -> int:
        """Those of one replica; 0 where the batch does not come out even."""
        train = self.spec.train
        assert train is not None
        m, odd = divmod(train.global_batch, work.micro_batch * self.spec.parallel.dp)
        return 0 if odd else m

    @property
    def parts(self) -> tuple[Values, ...]:
        """What is chosen."""
        return (self.chosen,)

    @property
    def left(self) -> tuple[Choices, ...]:
        """The lists that are not."""
        return self.stem.left("schedule")

    @property
    def number(self) -> int:
        """How many layouts there are."""
        return self.stem.number("schedule")


@dataclass(frozen=True, slots=True)
class Core:
    """A grid with a microbatch and a recompute; bytes without state are `activations`.

    `memories` are the accounts of its layouts by what they hang on: ZeRO stage, shards, method.
    """

    grid: Grid
    work: Work
    microbatches: int
    activations: int
    memories: dict[tuple[Any, ...], Memory] = field(default_factory=dict, compare=False)

    @property
    def parts(self) -> tuple[Values, ...]:
        """What is chosen."""
        return (self.grid.chosen, self.work.chosen)

    @property
    def left(self) -> tuple[Choices, ...]:
        """The lists that are not."""
        return self.grid.stem.left("schedule", "work")

    @property
    def number(self) -> int:
        """How many layouts there are."""
        return self.grid.stem.number("schedule", "work")


@dataclass(frozen=True, slots=True)
class Cut:
    """One layout: a core on a place, with a method."""

    core: Core
    place: Place
    method: Values

    @property
    def parts(self) -> tuple[Values, ...]:
        """What is chosen: everything."""
        return (*self.core.parts, self.place.order, self.place.state, self.method)

    @property
    def left(self) -> tuple[Choices, ...]:
        """The lists that are not."""
        return ()

    @property
    def number(self) -> int:
        """How many layouts there are."""
        return 1


Set = Grid | Core | Cut
