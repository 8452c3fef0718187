"""A set of degrees with what is left to decide on it: lists that hang on nothing but the degrees.

A layout below a stem is one schedule, one `work` (microbatch, recompute), one order, one `state`
(ZeRO stage, shard) and one method of context parallelism. Layouts are counted by the lengths of
these lists, and few of them are ever written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from parlay.compiler.checks.subject import Subject
from parlay.compiler.planner.space import Field, Known, leaves
from parlay.compiler.planner.spelling import spelling

Values = Mapping[str, Any]
"""Chosen values by path."""

LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": ("parallel.schedule",),
    "work": ("train.micro_batch", "train.recompute"),
    "method": ("parallel.cp_method",),
    "order": ("parallel.order",),
    "state": ("parallel.zero", "parallel.shard"),
}
"""What a list decides together; every other field is a degree."""
LATE: Final = frozenset(path for paths in LISTS.values() for path in paths)


class Choices(NamedTuple):
    """One list: every way to decide its fields, and how often each value of a field is in it."""

    ways: tuple[Values, ...]
    values: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, ways: Sequence[Values]) -> Choices:
        """The list with its values counted."""
        counted: dict[tuple[str, str], int] = {}
        for way in ways:
            for path, value in way.items():
                at = (path, spelling(value))
                counted[at] = counted.get(at, 0) + 1
        return cls(tuple(ways), counted)


class Lister:
    """The lists of every set of degrees; those that are alike are one object."""

    def __init__(self, subject: Subject, fields: Sequence[Field]) -> None:
        self.subject = subject
        self.fields = {
            name: tuple(each for each in fields if each.path in paths)
            for name, paths in LISTS.items()
        }
        self.known: dict[tuple[Any, ...], Choices] = {}

    def of(self, chosen: Values) -> Mapping[str, Choices]:
        """The lists behind the degrees `chosen`."""
        known = Known(self.subject, chosen)
        tp, pp, cp, dp = (known.size(axis) for axis in ("tp", "pp", "cp", "dp"))
        # What the values of each list hang on (`space.py`).
        keys = {
            "schedule": (pp,),
            "work": (dp,),
            "method": (cp,),
            "order": (tp > 1, pp > 1, cp > 1, dp > 1),
            "state": (dp * cp,),
        }
        return {name: self._list(name, chosen, keys[name]) for name in LISTS}

    def _list(self, name: str, chosen: Values, key: tuple[Any, ...]) -> Choices:
        at = (name, *key)
        if at not in self.known:
            ways = tuple(leaves(self.fields[name], self.subject, chosen))
            self.known[at] = Choices.of(ways)
        return self.known[at]


@dataclass(frozen=True)
class Stem:
    """Degrees that stand: `subject` has them, and the first of every list for the rest."""

    subject: Subject
    chosen: Values
    lists: Mapping[str, Choices]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The degrees that a layer's work and what it keeps hang on."""
        parallel = self.subject.parallel
        return parallel.tp, parallel.cp, parallel.ep, parallel.etp

    @cached_property
    def zeros(self) -> Mapping[tuple[int, bool], int]:
        """The kinds of state that may be chosen, a ZeRO stage and whether one rank alone has a
        copy, with the most ranks that it may be cut over."""
        parallel, found = self.subject.parallel, dict[tuple[int, bool], int]()
        for way in self.lists["state"].ways:
            zero = way.get("parallel.zero", parallel.zero)
            ranks = way.get("parallel.shard", parallel.shard)
            key = zero, ranks == 1
            found[key] = max(found.get(key, 1), ranks)
        return found

    def number(self, *decided: str) -> int:
        """How many layouts there are once the lists named are decided."""
        return prod(len(c.ways) for name, c in self.lists.items() if name not in decided)

    def left(self, *decided: str) -> tuple[Choices, ...]:
        """The lists that are not decided yet."""
        return tuple(c for name, c in self.lists.items() if name not in decided)

    def every(self) -> Iterator[Values]:
        """Every layout, written out."""
        for ways in product(*(choices.ways for choices in self.lists.values())):
            found = dict(self.chosen)
            for way in ways:
                found.update(way)
            yield found
