"""The sets of degrees of a phase: decided one after another, each rule asked as soon as it can be.

An error settles every layout below it at once; those are counted by the lengths of the lists that
they are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from parlay.compiler.checks.degrees import degrees_hold
from parlay.compiler.checks.subject import Subject
from parlay.compiler.planner.asking import Asking
from parlay.compiler.planner.deciding import decided, with_values
from parlay.compiler.planner.space import Counter, Field, Known
from parlay.compiler.planner.stem import LATE, Lister, Stem
from parlay.compiler.planner.tally import Tally

NO_GRID: Final = "L201"
"""The code of degrees that make no grid, where no rule says it by itself."""


class Stems:
    """The stems of a phase whose degrees no rule refuses; what falls is counted in `tally`."""

    def __init__(
        self, subject: Subject, every: Sequence[Field], asking: Asking, tally: Tally
    ) -> None:
        self.subject, self.asking, self.tally = subject, asking, tally
        self.degrees = tuple(each for each in every if each.path not in LATE)
        self.late = tuple(each for each in every if each.path in LATE)
        self._size = Counter(subject)
        self._lists = Lister(subject, self.late)

    def every(self) -> Iterator[Stem]:
        """One after another, as they are asked for."""
        return self._below(0, {}, self.subject)

    def _below(self, level: int, chosen: dict[str, Any], subject: Subject) -> Iterator[Stem]:
        left = self.degrees[level:]
        if left:
            code = self.asking.fault(self.asking.degrees[level], subject)
            if code is not None:
                number = self._size.below((*left, *self.late), chosen)
                self.tally.reject(code, chosen, number)
                return
            path = left[0].path
            for value in left[0].values(Known(self.subject, chosen)):
                deeper = with_values(subject, {path: value})
                yield from self._below(level + 1, {**chosen, path: value}, deeper)
            return
        lists = self._lists.of(chosen)
        first = {path: value for each in lists.values() for path, value in each.ways[0].items()}
        stem = Stem(decided(with_values(subject, {}), first), chosen, lists)
        code = self.asking.fault(self.asking.degrees[level], stem.subject)
        if code is None and not self.late and not degrees_hold(stem.subject):
            code = NO_GRID
        code = code or self._far(stem)
        if code is not None:
            self.tally.reject(code, chosen, stem.number(), stem.left())
            return
        yield stem

    def _far(self, stem: Stem) -> str | None:
        """The code where no order has the ranks of tp near each other."""
        if not self.asking.near or len(stem.lists["order"].ways) < 2:
            return None
        code = None
        for order in stem.lists["order"].ways:
            code = self.asking.far(stem.subject, order)
            if code is None:
                return None
        return code
