"""Every legal layout of a phase, and by which rule each of the others falls.

Degrees are decided one after another (`stems.py`). A rule is asked as soon as all that it reads is
known, so an error settles every layout below it at once. What is left is taken from the lowest
bound on (`times.py`, `weights.py`), in steps that decide more and bound closer: schedule,
microbatch and recompute, then order and sharding. A set of layouts that cannot be better than one
that is known already, in anything that is asked for, is counted as outdone, and neither its rules
nor its ledgers are worked out. So every layout searched is legal, rejected by a code, or outdone.
A search that has taken as many sets as it may tells what it left (`gap.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count
from math import prod
from typing import Any, Final

from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.memory import Memory, account
from parlay.compiler.ledger.time import priceable
from parlay.compiler.planner.asking import PEAK, Asking
from parlay.compiler.planner.best import Best
from parlay.compiler.planner.deciding import decided, with_values
from parlay.compiler.planner.gap import Gap
from parlay.compiler.planner.grids import Grids
from parlay.compiler.planner.placing import Placing
from parlay.compiler.planner.score import Score, budget_bytes, score
from parlay.compiler.planner.sets import Bound, Core, Cut, Grid, Place, Refused, Set, Way
from parlay.compiler.planner.space import EVERY, fields
from parlay.compiler.planner.stem import LATE, Stem, Values
from parlay.compiler.planner.stems import Stems
from parlay.compiler.planner.tally import Candidate, Judge, Tally
from parlay.compiler.planner.times import Times
from parlay.compiler.planner.weights import Floor, Weights

LOOSE: Final[Mapping[type, float]] = {Grid: 1.3, Core: 1.1, Cut: 1.0}
"""About how much layouts take over the bound of the set that they are in."""
EARLY: Final = ("schedule", "work")
"""The lists that a core has decided."""
NOTHING: Final = Bound(0.0, 0)


class Search:
    """One search over the open fields of a phase; `further` judges what no general rule does.

    `most` is the number of sets that may be taken, None for as many as there are; `settled` says
    afterwards whether they were enough, `gap` what was left if they were not.
    """

    def __init__(
        self, subject: Subject, further: Judge = lambda _: None, most: int | None = None
    ) -> None:
        self.further, self.most = further, most
        self.subject = replace(subject, searching=True)
        every = fields(subject)
        self.tally = Tally()
        self.gap: Gap | None = None
        self.settled = True
        self.asking = Asking(subject, [each.path for each in every if each.path not in LATE])
        self.stems = Stems(self.subject, every, self.asking, self.tally)
        self.grids = Grids(self.asking, self.tally)
        self.placing = Placing(self.asking)
        self.times, self.weights = Times(self.subject.spec), Weights(self.subject.spec)
        self.taken = 0
        self._priced = priceable(self.subject.spec)
        self._asked_of_work = bool(self.asking.lists["work"])
        allowed = PEAK in self.subject.origins.allowed
        self._budget = float("inf") if allowed else budget_bytes(self.subject.spec)

    def run(self, best: Best) -> None:
        """Judges every layout that could have a place in `best`, until that has enough."""
        stems = self.stems.every()
        left: list[tuple[Bound, Set]] = []
        for some in ([stem] for stem in stems) if best.first else [list(stems)]:
            if best.first:
                if self._enough:
                    self.settled = False
                    break
                self.taken += 1
            left += self._drain([each for stem in some for each in self._grids(stem)], best)
            if best.enough:
                break
        self.tally.settle()
        if left and not best.enough:
            self.settled = False
            self.gap = Gap.of(best, left)
            self.tally.unsearched = self.gap.number

    @property
    def _enough(self) -> bool:
        """Whether no more sets may be taken."""
        return self.most is not None and self.taken >= self.most

    def _drain(self, found: Iterable[tuple[Bound, Set]], best: Best) -> list[tuple[Bound, Set]]:
        """Takes sets from the lowest bound on; those that are left when no more may be taken."""
        steps: dict[type, Callable[..., Iterator[tuple[Bound, Set]]]] = {
            Grid: self._work,
            Core: self._split,
            Cut: self._weigh,
        }
        order = count()
        heap = [(_urgency(best, bound, each), next(order), bound, each) for bound, each in found]
        heapify(heap)
        while heap and not best.enough and not self._enough:
            _, _, bound, each = heappop(heap)
            self.taken += 1
            for closer, below in steps[type(each)](each, bound, best):
                heappush(heap, (_urgency(best, closer, below), next(order), closer, below))
        left: list[tuple[Bound, Set]] = []
        for _, _, bound, each in () if best.enough else heap:
            if best.beyond(bound, each.parts, each.left):
                self.tally.pass_over(each.number)
            else:
                left.append((bound, each))
        return left

    # ── Schedule, microbatch, recompute ───────────────────────────────────────

    def _grids(self, stem: Stem) -> Iterator[tuple[Bound, Grid]]:
        weights = self.weights
        few = [found[0] for found in self.grids.works(stem).values()]
        ways = self.placing.apart(stem) if self._priced else ()
        for grid in self.grids.of(stem, self._refuse_all):
            least = weights.least_state(grid)
            kept = min(max(weights.of_one(grid, work)) for work in few)
            if least + kept > self._budget:
                self.tally.reject(PEAK, grid.chosen, grid.number, grid.left)
                continue
            seconds = 0.0
            if self._priced:
                seconds = self.times.of_grid(grid, few, ways, scattered=may_scatter(stem))
            yield Bound(seconds, least + kept), grid

    def _refuse_all(self, stem: Stem, chosen: Values, standing: Subject) -> None:
        """Counts the layouts of a stem on which no place stands."""
        for way in self.placing.ways(stem):
            placed = self.placing.of(stem, standing, way)
            self._refuse(stem, chosen, placed.refused, ("work", "method"))

    def _refuse(
        self, stem: Stem, chosen: Values, refused: Iterable[Refused], names: tuple[str, ...]
    ) -> None:
        """Counts places that a rule refuses, with every entry of the lists named."""
        lists = tuple(stem.lists[name] for name in names)
        times = prod(len(each.ways) for each in lists)
        for code, also, number, left in refused:
            self.tally.reject(code, {**chosen, **also}, number * times, (*left, *lists))

    def _work(self, grid: Grid, bound: Bound, best: Best) -> Iterator[tuple[Bound, Core]]:
        """A grid by microbatch and recompute; those that may not fit first."""
        stem, weights, tally = grid.stem, self.weights, self.tally
        number, left = stem.number(*EARLY), stem.left(*EARLY)
        state = weights.least_state(grid)
        scattered = may_scatter(stem)
        ways = self.placing.apart(stem)
        # What beats the grid beats every work on it, but those with a value that nothing has yet.
        outdone = best.beyond(bound, grid.parts, left)
        code_of = None
        if self._asked_of_work:
            code_of = self.asking.of("work", self.grids.subject(grid))
        passed = 0
        for works in self.grids.works(stem).values():
            fit = weights.largest(grid, works, self._budget - state)
            for place, work in enumerate(works):
                if outdone and best.has(bound, work.chosen):
                    passed += number
                    continue
                code = PEAK if place >= fit else code_of and code_of(work.chosen)
                m = grid.microbatches(work)
                kept = weights.activations(grid, work, m) if m and not code else 0
                if code or state + kept > self._budget:
                    tally.reject(code or PEAK, {**grid.chosen, **work.chosen}, number, left)
                    continue
                seconds = bound.seconds
                if self._priced and ways:
                    nearest = min(
                        self.times.ideal(grid, work, way, work.micro_batch, scattered=scattered)
                        for way in ways
                    )
                    seconds = max(seconds, nearest)
                closer = Bound(seconds, state + kept)
                if best.beyond(closer, (grid.chosen, work.chosen), left):
                    passed += number
                    continue
                yield closer, Core(grid, work, m, kept)
        tally.pass_over(passed)

    # ── Order, sharding, method ───────────────────────────────────────────────

    def _split(self, core: Core, bound: Bound, best: Best) -> Iterator[tuple[Bound, Cut]]:
        """A core by order, by how state is cut over ranks, and by method."""
        grid, work, stem = core.grid, core.work, core.grid.stem
        if best.beyond(bound, core.parts, core.left):
            self.tally.pass_over(core.number)
            return
        ways = self.placing.ways(stem)
        seconds = self._by_order(core, ways, bound)
        stands = any(way.layout for way in ways)
        fastest = min(seconds) if stands else bound.seconds
        if stands and best.beyond(Bound(fastest, bound.bytes), core.parts, core.left):
            self.tally.pass_over(core.number)
            return
        floors, least = self._floors(core)
        chosen = {**grid.chosen, **work.chosen}
        if not floors:
            self.tally.reject(PEAK, chosen, core.number, core.left)
            return
        if stands and best.beyond(Bound(fastest, least), core.parts, core.left):
            self.tally.pass_over(core.number)
            return
        passed = 0
        left, number = stem.left(*EARLY, "order"), stem.number(*EARLY, "order")
        for way, fastest in zip(ways, seconds, strict=True):
            if way.layout and best.beyond(Bound(fastest, least), (*core.parts, way.order), left):
                passed += number
                continue
            placed = self.placing.of(stem, self.grids.subject(grid), way)
            self._refuse(stem, chosen, placed.refused, ("method",))
            for place in placed.places:
                found = self._cuts(core, way, place, fastest, floors, best)
                passed += len(stem.lists["method"].ways)
                for closer, cut in found:
                    passed -= 1
                    if cut is not None:
                        yield closer, cut
        self.tally.pass_over(passed)

    def _floors(self, core: Core) -> tuple[Mapping[tuple[int, bool], tuple[Floor, ...]], int]:
        """What layouts of a core hold beside state, for each kind of it that may fit; the least
        that one of them holds."""
        grid, weights = core.grid, self.weights
        kept = core.activations + weights.inside(grid, core.work)
        found: dict[tuple[int, bool], tuple[Floor, ...]] = {}
        least: list[int] = []
        for zero, shards in weights.widest(grid):
            if weights.state(grid, zero, shards) + kept > self._budget:
                continue
            floors = weights.floors(core, zero, shards)
            peak = min([weights.above(grid, each, zero, shards) for each in floors])
            if peak <= self._budget:
                found[zero, shards.dense == 1] = floors
                least.append(peak)
        return found, min(least, default=0)

    def _cuts(
        self,
        core: Core,
        way: Way,
        place: Place,
        seconds: float,
        floors: Mapping[tuple[int, bool], tuple[Floor, ...]],
        best: Best,
    ) -> Iterator[tuple[Bound, Cut | None]]:
        """The layouts of a core on a place: what may count, and None for what does not fit."""
        grid, zero, shards = core.grid, place.zero, place.shards
        chosen = {**grid.chosen, **core.work.chosen, **place.order, **place.state}
        known = floors.get((zero, shards.dense == 1))
        if known is None:
            methods = grid.stem.lists["method"]
            self.tally.reject(PEAK, chosen, len(methods.ways), (methods,))
            for _ in methods.ways:
                yield NOTHING, None
            return
        exact = None if self._priced else seconds
        for floor in known:
            size = self.weights.above(grid, floor, zero, shards)
            if size > self._budget:
                self.tally.reject(PEAK, {**chosen, **floor.method})
                yield NOTHING, None
                continue
            cut = Cut(core, place, floor.method)
            if best.beyond(Bound(seconds, size), cut.parts):
                continue
            if exact is None:
                work, m = core.work, core.microbatches
                exact = max(seconds, self.times.of_place(grid, work, m, way, place))
            if not best.beyond(Bound(exact, size), cut.parts):
                yield Bound(exact, size), cut

    def _by_order(self, core: Core, ways: Iterable[Way], bound: Bound) -> list[float]:
        """The least seconds in each order of a stem."""
        if not self._priced:
            return [0.0 for _ in ways]
        scattered = may_scatter(core.grid.stem)
        known: dict[tuple[Any, ...], float] = {}
        found: list[float] = []
        for way in ways:
            if way.layout is None:
                found.append(float("inf"))
                continue
            if way.wires not in known:
                known[way.wires] = self.times.of_order(
                    core.grid, core.work, core.microbatches, way, scattered=scattered
                )
            found.append(max(bound.seconds, known[way.wires]))
        return found

    # ── Memory as it is, then time as it is ───────────────────────────────────

    def _weigh(self, cut: Cut, bound: Bound, best: Best) -> Iterator[tuple[Bound, Set]]:
        """One layout: its memory, its rules, its time."""
        if best.beyond(bound, cut.parts):
            self.tally.pass_over(1)
            return
        subject = self._subject(cut, cut.method)
        memory = self._memory(cut, subject)
        peak = memory.worst.peak_bytes
        if peak > self._budget:
            every = {path: value for part in cut.parts for path, value in part.items()}
            self.tally.reject(PEAK, every)
        elif best.beyond(Bound(bound.seconds, peak), cut.parts):
            self.tally.pass_over(1)
        else:
            figures = score(subject, memory)
            if best.beyond(Bound(best.slow(figures.step_seconds), peak), cut.parts):
                self.tally.pass_over(1)
            else:
                self._judge(subject, figures, cut.parts, best)
        yield from ()

    def _memory(self, cut: Cut, subject: Subject) -> Memory:
        """The account of a layout, once for all of its core that are cut alike."""
        place, known = cut.place, cut.core.memories
        key = (place.zero, place.shards, id(cut.method))
        if key not in known:
            known[key] = account(subject.spec, subject.laid_out)
        return known[key]

    def _subject(self, cut: Cut, method: Values) -> Subject:
        """The whole job with one layout."""
        core, place = cut.core, cut.place
        values = {**core.work.chosen, **place.order, **place.state, **method}
        return decided(with_values(self.grids.subject(core.grid), {}), values)

    def _judge(
        self, subject: Subject, figures: Score, parts: tuple[Values, ...], best: Best
    ) -> None:
        every = {path: value for part in parts for path, value in part.items()}
        chosen = {path: every[path] for path in EVERY if path in every}
        code = self.asking.fault(self.asking.whole, subject)
        if code is not None:
            self.tally.reject(code, chosen)
            return
        found = Candidate(chosen, subject, figures)
        refusal = self.further(found)
        if refusal is not None:
            self.tally.reject(refusal.code, chosen)
            self.tally.words.setdefault(refusal.code, refusal.words)
            return
        self.tally.searched += 1
        self.tally.legal += 1
        best.take(found)


def _urgency(best: Best, bound: Bound, each: Set) -> tuple[float, float]:
    """The order in which sets of layouts are taken: no answer hangs on it, only how soon it comes.

    A looser bound counts as more, so that good layouts are known before the last of the grids.
    """
    first, second = best.key(*bound)
    return first * LOOSE[type(each)], second


def may_scatter(stem: Stem) -> bool:
    """Whether ZeRO 2 or 3 may be chosen on a stem."""
    zero = stem.subject.parallel.zero
    return any(way.get("parallel.zero", zero) >= 2 for way in stem.lists["state"].ways)
