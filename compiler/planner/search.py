"""Every legal layout of a phase, and by which rule each of the others falls.

Degrees, order and schedule are decided one after another. A rule is asked as soon as all that it
reads is known, so an error settles every layout below it at once; all of them are counted under its
code. What is left on each grid (microbatch, recompute, sharding) is bounded first (`bound.py`), and
judged from the lowest bound on: a layout that cannot be better than one that is known already, in
anything that is asked for, is counted as outdone, and neither its rules nor its ledger are worked
out. So every layout searched is legal, rejected by a code, or outdone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final, NamedTuple

from parlay.compiler.checks import degrees_hold
from parlay.compiler.checks.subject import Subject
from parlay.compiler.planner.asking import PEAK, fault, rounds
from parlay.compiler.planner.best import Best
from parlay.compiler.planner.bound import Bound, Bounds, Grid, Rest
from parlay.compiler.planner.score import Score, budget_bytes, overfull, score
from parlay.compiler.planner.space import Counter as Counting
from parlay.compiler.planner.space import Field, Known, Lister, fields
from parlay.compiler.planner.spelling import spelling

NO_GRID: Final = "L201"
"""The code of degrees that make no grid, where no rule says it by itself."""
LATE: Final = (
    "parallel.zero",
    "parallel.cp_method",
    "train.micro_batch",
    "train.recompute",
)
"""Fields that are decided on a grid that stands."""


@dataclass
class Tally:
    """How many layouts were searched, and what became of them.

    `by_value` has the codes by field and value, `words` what a code that is no general rule's said
    first.
    """

    searched: int = 0
    legal: int = 0
    outdone: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    by_value: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def reject(self, code: str, chosen: Mapping[str, Any], number: int = 1) -> None:
        """`number` layouts with `chosen` fall by a code."""
        self.rejected[code] += number
        self.searched += number
        for path, value in chosen.items():
            self.by_value.setdefault((path, spelling(value)), Counter())[code] += number


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


class Search:
    """One search over the open fields of a phase; `further` judges what no general rule does."""

    def __init__(self, subject: Subject, further: Judge = lambda _: None) -> None:
        self.further = further
        self.subject = replace(subject, searching=True)
        every = fields(subject)
        # Shards are groups of the layout, and how they may be cut hangs on the ZeRO stage.
        sharded = "parallel.shard" in subject.open
        late = [path for path in LATE if not (sharded and path == "parallel.zero")]
        self.early = tuple(each for each in every if each.path not in late)
        self.late = tuple(each for each in every if each.path in late)
        self.tally = Tally()
        paths = [each.path for each in (*self.early, *self.late)]
        asked = rounds(subject, paths)
        self._size = Counting(self.subject)
        self._early = asked[: len(self.early) + 1]
        self._late = tuple(rule for each in asked[len(self.early) + 1 :] for rule in each)

    def run(self, best: Best) -> None:
        """Judges every layout that could have a place in `best`, until that has enough."""
        bounds, ways = Bounds(), Lister(self.late)
        rests: dict[int, list[Rest]] = {}
        found: list[tuple[tuple[float, float], Bound, Grid, Rest]] = []
        allowed = PEAK in self.subject.origins.allowed
        budget = float("inf") if allowed else budget_bytes(self.subject.spec)
        for grid in self._grids(0, {}, self.subject):
            listed = ways.of(grid.subject)
            if id(listed) not in rests:
                rests[id(listed)] = [Rest.of(grid.subject, chosen) for chosen in listed]
            for rest in rests[id(listed)]:
                bound = bounds.of(grid, rest)
                if bound.bytes > budget:
                    self.tally.reject(PEAK, {**grid.chosen, **rest.chosen})
                else:
                    found.append((best.key(*bound), bound, grid, rest))
        found.sort(key=itemgetter(0))
        for _, bound, grid, rest in found:
            if best.enough:
                return
            if best.beyond(bound, grid.chosen, rest.chosen):
                self.tally.searched += 1
                self.tally.outdone += 1
            else:
                self._judge(grid, rest, best)

    # ── Degrees, order, schedule ──────────────────────────────────────────────

    def _grids(self, level: int, chosen: dict[str, Any], subject: Subject) -> Iterator[Grid]:
        left = self.early[level:]
        codes = (fault(rule, subject) for rule in self._early[level])
        code = next((code for code in codes if code is not None), None)
        if code is None and not left and not degrees_hold(subject):
            code = NO_GRID
        if code is not None:
            number = self._size.below((*left, *self.late), chosen)
            self.tally.reject(code, chosen, number)
            return
        if not left:
            yield Grid.of(subject, chosen)
            return
        path = left[0].path
        for value in left[0].values(Known(self.subject, chosen)):
            deeper = _with(subject, {path: value})
            yield from self._grids(level + 1, {**chosen, path: value}, deeper)

    # ── The rest ──────────────────────────────────────────────────────────────

    def _judge(self, grid: Grid, rest: Rest, best: Best) -> None:
        chosen = {**grid.chosen, **rest.chosen}
        subject = _with(grid.subject, rest.chosen) if rest.chosen else grid.subject
        codes = (fault(rule, subject) for rule in self._late)
        code = next((code for code in codes if code is not None), None)
        if code is not None:
            self.tally.reject(code, chosen)
            return
        if PEAK not in self.subject.origins.allowed and overfull(subject):
            self.tally.reject(PEAK, chosen)
            return
        found = Candidate(chosen, subject, score(subject))
        if not found.score.fits and PEAK not in self.subject.origins.allowed:
            self.tally.reject(PEAK, chosen)
            return
        refusal = self.further(found)
        if refusal is not None:
            self.tally.reject(refusal.code, chosen)
            self.tally.words.setdefault(refusal.code, refusal.words)
            return
        self.tally.searched += 1
        self.tally.legal += 1
        best.take(found)


def _with(subject: Subject, values: Mapping[str, Any]) -> Subject:
    """The job with more fields decided; dp is no longer open once it follows."""
    deeper = subject.with_values(values)
    if "parallel.dp" in deeper.open and deeper.parallel.dp is not None:
        left: dict[str, Field] = {p: o for p, o in deeper.open.items() if p != "parallel.dp"}
        deeper = replace(deeper, open=left)
    return deeper
