"""Sets of layouts on their way to single ones: what they have in common, closer step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.memory import Memory
from parlay.compiler.ledger.memory.states import Shards
from parlay.compiler.planner.bound import Grid, Work
from parlay.compiler.planner.stem import Choices, Values


class Place(NamedTuple):
    """An order and a state on a stem: where ranks stand, and how state is cut over them."""

    order: Values
    state: Values


class Class(NamedTuple):
    """Places whose ranks hold the same state."""

    zero: int
    shards: Shards
    places: tuple[Place, ...]
    orders: tuple[int, ...]
    values: tuple[Choices, ...]


class Refused(NamedTuple):
    """`number` places fall by a code, those of `chosen`."""

    code: str
    chosen: Values
    number: int
    left: tuple[Choices, ...]


@dataclass(frozen=True)
class Placed:
    """The places of a stem: in classes, and those that a rule refuses.

    `wires` are told apart by how far the groups reach that layers and stages talk over.
    """

    classes: tuple[Class, ...]
    refused: tuple[Refused, ...]
    layouts: Mapping[int, Layout]
    wires: Mapping[int, tuple[Any, ...]]
    scattered: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Core:
    """A grid with a microbatch and a recompute; bytes without state are `activations`."""

    grid: Grid
    work: Work
    microbatches: int
    activations: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A core with one class of places; with one method once its memory is known."""

    core: Core
    held: Class
    seconds: Mapping[int, float]
    method: Values | None = None
    memory: Memory | None = None
