"""What became of the layouts that were searched, counted: the legal, the outdone, the refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parlay.compiler.checks.subject import Subject
from parlay.compiler.planner.score import Score
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.stem import Choices, Values


@dataclass
class Tally:
    """How many layouts were searched, and what became of them.

    `by_value` has the codes by field and value, `words` what a code that is no general rule's said
    first. `unsearched` are those beside, in sets that a search did not come to.
    """

    searched: int = 0
    legal: int = 0
    outdone: int = 0
    unsearched: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    by_value: dict[tuple[str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    words: dict[str, str] = field(default_factory=dict)
    _left: dict[int, tuple[Choices, Counter[str]]] = field(default_factory=dict)

    def reject(
        self, code: str, chosen: Values, number: int = 1, left: Iterable[Choices] = ()
    ) -> None:
        """`number` layouts with `chosen` fall by a code, with every entry of the lists `left`."""
        if not number:
            return
        self.rejected[code] += number
        self.searched += number
        for path, value in chosen.items():
            self.by_value[path, spelling(value)][code] += number
        for choices in left:
            self._left.setdefault(id(choices), (choices, Counter()))[1][code] += number

    def settle(self) -> None:
        """Deals out what fell with whole lists to their values."""
        for choices, codes in self._left.values():
            for at, times in choices.values.items():
                for code, number in codes.items():
                    self.by_value[at][code] += number * times // len(choices.ways)
        self._left.clear()

    def pass_over(self, number: int) -> None:
        """So many cannot be better than what is known."""
        self.outdone += number
        self.searched += number


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout: what was chosen, by path, the whole job with it, its figures."""

    chosen: Mapping[str, Any]
    subject: Subject
    score: Score


class Refusal(NamedTuple):
    """Why a layout falls that every general rule lets through: a code, and what is wrong."""

    code: str
    words: str


Judge = Callable[[Candidate], Refusal | None]
"""Judges what the general rules let through; None where it has nothing against it."""
