"""What a search did not look into: how many layouts, and what they take at the least.

A search ends when nothing is left that could change its answer, or when it has taken as many sets
of layouts as it may. Then every set that is left has its bound, and what is better than the bounds
of all of them is proven all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parlay.compiler.planner.sets import Bound
from parlay.compiler.planner.spelling import spelling

if TYPE_CHECKING:
    from parlay.compiler.planner.best import Best, Key
    from parlay.compiler.planner.sets import Set
    from parlay.compiler.planner.stem import Choices


@dataclass(frozen=True, slots=True)
class Gap:
    """`number` layouts in sets that were not looked into, none of which takes less than `least`.

    `front` are the bounds that no other one is below in both figures, `values` the least with each
    value of a field, in the order of the objective.
    """

    number: int
    least: Bound
    front: tuple[Bound, ...]
    values: dict[tuple[str, str], Bound]

    @classmethod
    def of(cls, best: Best, left: Iterable[tuple[Bound, Set]]) -> Gap:
        """What is left of a search."""
        number, bounds = 0, dict[Bound, None]()
        values: dict[tuple[str, str], Bound] = {}
        lists: dict[int, tuple[Choices, Bound]] = {}

        def lower(key: Key, known: Bound | None) -> bool:
            return known is None or key < best.key(*known)

        for bound, each in left:
            number += each.number
            bounds[bound] = None
            key = best.key(*bound)
            for part in each.parts:
                for path, value in part.items():
                    at = (path, spelling(value))
                    if lower(key, values.get(at)):
                        values[at] = bound
            for choices in each.left:
                known = lists.get(id(choices))
                if known is None or lower(key, known[1]):
                    lists[id(choices)] = choices, bound
        for choices, bound in lists.values():
            for at in choices.values:
                if lower(best.key(*bound), values.get(at)):
                    values[at] = bound
        front: list[Bound] = []
        for bound in sorted(bounds):
            if not front or bound.bytes < front[-1].bytes:
                front.append(bound)
        least = Bound(front[0].seconds, front[-1].bytes)
        return cls(number, least, tuple(front), values)

    def below(self, bound: Bound) -> bool:
        """Whether a layout that was not looked into may be better than `bound` in one figure and no
        worse in the other."""
        return any(
            each.seconds <= bound.seconds and each.bytes <= bound.bytes for each in self.front
        )
