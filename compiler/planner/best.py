"""What is kept of a search: the best, the runners-up, the front, the best for each single value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from parlay.compiler.planner.sets import Bound
from parlay.compiler.planner.spelling import spelling

if TYPE_CHECKING:
    from parlay.compiler.planner.stem import Choices
    from parlay.compiler.planner.tally import Candidate

Key = tuple[float, float]
NEVER: Final = (float("inf"), float("inf"))


class Best:
    """The best of what was judged, by one objective; ties go to whatever came first.

    `top` are the best so many, `front` those that no other beats in both seconds and bytes,
    `by_value` the best with each value of each field. `first` asks for one legal layout, no more.
    """

    def __init__(self, objective: str, most: int, *, first: bool = False) -> None:
        self.objective, self.most, self.first = objective, most, first
        self.top: list[Candidate] = []
        self.front: list[Candidate] = []
        self.by_value: dict[tuple[str, str], Candidate] = {}
        self.taken = 0
        self._worsts: dict[int, tuple[int, Key, Choices]] = {}

    @property
    def enough(self) -> bool:
        """Whether nothing more is asked for."""
        return self.first and bool(self.top)

    def key(self, seconds: float | None, bytes_: int) -> Key:
        """Ascending from the best."""
        slow = self.slow(seconds)
        return (float(bytes_), slow) if self.objective == "headroom" else (slow, float(bytes_))

    @staticmethod
    def slow(seconds: float | None) -> float:
        """Seconds; past all where none are known."""
        return float("inf") if seconds is None else seconds

    def beyond(
        self, bound: Bound, chosen: Sequence[Mapping[str, Any]], left: Sequence[Choices] = ()
    ) -> bool:
        """Whether layouts that take at least `bound` can have no place here.

        They have what is `chosen`, and any of the values of the lists that are `left`.
        """
        key = self.key(*bound)
        if len(self.top) < self.most or key < self._key(self.top[-1]):
            return False
        if not any(_within(each, bound) for each in self.front):
            return False
        if not all(self.has(bound, part) for part in chosen):
            return False
        return all(key >= self._worst(choices) for choices in left)

    def has(self, bound: Bound, chosen: Mapping[str, Any]) -> bool:
        """Whether what has each of these values is known at least as good as `bound`."""
        key = self.key(*bound)
        for path, value in chosen.items():
            known = self.by_value.get((path, spelling(value)))
            if known is None or key < self._key(known):
                return False
        return True

    def _worst(self, choices: Choices) -> Key:
        """The key of the worst of the best with each value of a list; past all where one has none
        yet."""
        at = id(choices)
        known = self._worsts.get(at)
        if known is None or known[0] != self.taken:
            found = [self.by_value.get(value) for value in choices.values]
            worst = max(
                (NEVER if each is None else self._key(each) for each in found), default=(0.0, 0.0)
            )
            # The list is kept with it: a number that another list may get tells nothing.
            known = self._worsts[at] = (self.taken, worst, choices)
        return known[1]

    def take(self, found: Candidate) -> None:
        """Takes a legal layout."""
        self.taken += 1
        key = self._key(found)
        self.top.append(found)
        self.top.sort(key=self._key)
        del self.top[self.most :]
        for path, value in found.chosen.items():
            at = (path, spelling(value))
            if at not in self.by_value or key < self._key(self.by_value[at]):
                self.by_value[at] = found
        seconds, bytes_ = _figures(found)
        if not any(_within(each, Bound(seconds, bytes_)) for each in self.front):
            bound = Bound(seconds, bytes_)
            self.front = [each for each in self.front if not _beats(bound, each)]
            self.front.append(found)

    def fastest_first(self) -> list[Candidate]:
        """The front in the order of time."""
        return sorted(self.front, key=_figures)

    def _key(self, found: Candidate) -> Key:
        return self.key(found.score.step_seconds, found.score.peak_bytes)


def _figures(found: Candidate) -> tuple[float, int]:
    seconds = found.score.step_seconds
    return (float("inf") if seconds is None else seconds), found.score.peak_bytes


def _within(known: Candidate, bound: Bound) -> bool:
    """Whether a known layout is at least as good as `bound` in both figures."""
    seconds, bytes_ = _figures(known)
    return seconds <= bound.seconds and bytes_ <= bound.bytes


def _beats(bound: Bound, other: Candidate) -> bool:
    seconds, bytes_ = _figures(other)
    return bound.seconds <= seconds and bound.bytes <= bytes_
