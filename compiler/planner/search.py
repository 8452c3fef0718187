"""Every legal layout of a phase, and by which rule each of the others falls.

Degrees are decided one after another (`stem.py`). A rule is asked as soon as all that it reads is
known, so an error settles every layout below it at once; they are counted by the lengths of the
lists that they are made of. What is left is taken from the lowest bound on (`bound.py`), in steps
that decide more and bound closer: schedule, microbatch and recompute, then sharding, then the
order. A set of layouts that cannot be better than one that is known already, in anything that is
asked for, is counted as outdone, and neither its rules nor its ledgers are worked out. So every
layout searched is legal, rejected by a code, or outdone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count
from math import prod
from typing import Any, Final

from parlay.compiler.checks.degrees import degrees_hold, stages_hold
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.ledger.memory import account
from parlay.compiler.ledger.memory.book import Book
from parlay.compiler.ledger.memory.states import Shards, shards_of
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.time import priceable
from parlay.compiler.ledger.time.step import held_by_rank
from parlay.compiler.planner.asking import PEAK, Asking
from parlay.compiler.planner.best import Best
from parlay.compiler.planner.bound import Bound, Bounds, Grid, Line, Work
from parlay.compiler.planner.score import Score, budget_bytes, score
from parlay.compiler.planner.sets import Class, Core, Cut, Place, Placed, Refused
from parlay.compiler.planner.space import EVERY, Known, fields
from parlay.compiler.planner.space import Counter as Counting
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.stem import LATE, Choices, Lister, Stem, Values
from parlay.compiler.planner.tally import Candidate, Judge, Tally
from parlay.compiler.spec.blocks import Spec

WIRED: Final = ("tp", "cp", "ep", "etp")
"""The groups that layers talk over."""
NO_GRID: Final = "L201"
"""The code of degrees that make no grid, where no rule says it by itself."""
LOOSE: Final[Mapping[type, float]] = {Grid: 2.0, Core: 1.5, Cut: 1.0}
"""About how much layouts take over the bound of the set that they are in."""


class Search:
    """One search over the open fields of a phase; `further` judges what no general rule does."""

    def __init__(self, subject: Subject, further: Judge = lambda _: None) -> None:
        self.further = further
        self.subject = replace(subject, searching=True)
        every = fields(subject)
        self.degrees = tuple(each for each in every if each.path not in LATE)
        self.late = tuple(each for each in every if each.path in LATE)
        self.tally = Tally()
        self.asking = Asking(subject, [each.path for each in self.degrees])
        self._size = Counting(self.subject)
        self._lists = Lister(self.subject, self.late)
        self._bounds = Bounds(self.subject.spec)
        self._priced = priceable(self.subject.spec)
        self._asked_of_work = bool(self.asking.lists["work"])
        self._works: dict[int, tuple[Choices, Mapping[str, Sequence[Work]]]] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        self._lines: dict[tuple[int, str], Line] = {}
        self._parameters: dict[tuple[Any, ...], Parameters] = {}
        self._subjects: dict[int, tuple[Grid, Subject]] = {}
        self._places: dict[int, tuple[Stem, Placed]] = {}
        allowed = PEAK in self.subject.origins.allowed
        self._budget = float("inf") if allowed else budget_bytes(self.subject.spec)

    def run(self, best: Best) -> None:
        """Judges every layout that could have a place in `best`, until that has enough."""
        stems = self._stems(0, {}, self.subject)
        for some in ([stem] for stem in stems) if best.first else [list(stems)]:
            self._drain([each for stem in some for each in self._grids(stem)], best)
            if best.enough:
                break
        self.tally.settle()

    def _drain(self, found: Iterable[tuple[Bound, Grid | Core | Cut]], best: Best) -> None:
        steps: dict[type, Callable[..., Iterator[tuple[Bound, Grid | Core | Cut]]]] = {
            Grid: self._work,
            Core: self._split,
            Cut: self._weigh,
        }
        order = count()
        heap = [(_urgency(best, bound, each), next(order), bound, each) for bound, each in found]
        heapify(heap)
        while heap and not best.enough:
            _, _, bound, each = heappop(heap)
            for closer, below in steps[type(each)](each, bound, best):
                heappush(heap, (_urgency(best, closer, below), next(order), closer, below))

    # ── Degrees ───────────────────────────────────────────────────────────────

    def _stems(self, level: int, chosen: dict[str, Any], subject: Subject) -> Iterator[Stem]:
        left = self.degrees[level:]
        if left:
            code = self.asking.fault(self.asking.degrees[level], subject)
            if code is not None:
                number = self._size.below((*left, *self.late), chosen)
                self.tally.reject(code, chosen, number)
                return
            path = left[0].path
            for value in left[0].values(Known(self.subject, chosen)):
                deeper = _with(subject, {path: value})
                yield from self._stems(level + 1, {**chosen, path: value}, deeper)
            return
        lists = self._lists.of(chosen)
        first = {path: value for each in lists.values() for path, value in each.ways[0].items()}
        stem = Stem(_decided(_with(subject, {}), first), chosen, lists)
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

    # ── Schedule, microbatch, recompute ───────────────────────────────────────

    def _grids(self, stem: Stem) -> Iterator[tuple[Bound, Grid]]:
        code_of = self.asking.of("schedule", stem.subject)
        parallel = stem.subject.parallel
        works = self._works_of(stem)
        few = [found[0] for found in works.values()]
        for chosen in stem.lists["schedule"].ways:
            decided = {**stem.chosen, **chosen}
            spec = stem.subject.spec
            if chosen:
                schedule = chosen["parallel.schedule"]
                spec = replace(spec, parallel=replace(parallel, schedule=schedule))
            code = code_of(chosen)
            if code is None and not stages_hold(spec.model, spec.parallel):
                code = NO_GRID
            if code is not None:
                self.tally.reject(code, decided, stem.number("schedule"), stem.left("schedule"))
                continue
            line = self._line(stem, chosen, spec)
            if line is None:
                placed = self._place(stem, _with(stem.subject, chosen))
                self._refuse(stem, decided, placed, ("work", "method"))
                continue
            held = self._held(spec, line)
            grid = Grid(stem, decided, chosen, spec, line, held)
            least = self._bounds.least_state(grid)
            kept = min(max(self._bounds.of_one(grid, work)) for work in few)
            if least + kept > self._budget:
                self.tally.reject(PEAK, decided, stem.number("schedule"), stem.left("schedule"))
                continue
            seconds = 0.0
            if self._priced:
                seconds = self._bounds.of_grid(grid, few, scattered=_may_scatter(stem))
            yield Bound(seconds, least + kept), grid

    def _line(self, stem: Stem, chosen: Values, spec: Spec) -> Line | None:
        """The pipeline of a stem and a schedule; None where no place stands on it."""
        key = (spec.parallel.pp, spelling(spec.parallel.schedule))
        if key not in self._lines:
            standing = self._standing(stem, _with(stem.subject, chosen))
            if standing is None:
                return None
            self._lines[key] = Line.of(standing.spec, standing.laid_out)
        return self._lines[key]

    def _held(self, spec: Spec, line: Line) -> Parameters:
        """The parameters of rank 0."""
        parallel = spec.parallel
        key = (line.words, parallel.pp, parallel.tp, parallel.ep, parallel.etp)
        if key not in self._parameters:
            self._parameters[key] = held_by_rank(spec, line.layout, 0)
        return self._parameters[key]

    def _standing(self, stem: Stem, subject: Subject) -> Subject | None:
        """The job with the first order and state that make a grid, if there are any."""
        if degrees_hold(subject):
            return subject
        for order in stem.lists["order"].ways:
            for state in stem.lists["state"].ways:
                other = _with(subject, {**order, **state})
                if degrees_hold(other):
                    return other
        return None

    def _refuse(self, stem: Stem, chosen: Values, placed: Placed, names: tuple[str, ...]) -> None:
        """Counts the places of a stem that a rule refuses, with every entry of the lists named."""
        lists = tuple(stem.lists[name] for name in names)
        times = prod(len(each.ways) for each in lists)
        for code, also, number, left in placed.refused:
            self.tally.reject(code, {**chosen, **also}, number * times, (*left, *lists))

    def _work(self, grid: Grid, bound: Bound, best: Best) -> Iterator[tuple[Bound, Core]]:
        """A grid by microbatch and recompute; those that may not fit first."""
        stem, bounds, tally = grid.stem, self._bounds, self.tally
        number, left = stem.number("schedule", "work"), stem.left("schedule", "work")
        state = bounds.least_state(grid)
        scattered = _may_scatter(stem)
        # What beats the grid beats every work on it, but those with a value that nothing has yet.
        outdone = best.beyond(bound, (grid.chosen,), left)
        code_of = self.asking.of("work", self._subject_of(grid)) if self._asked_of_work else None
        passed = 0
        for works in self._works_of(stem).values():
            fit = bounds.largest(grid, works, self._budget - state)
            for place, work in enumerate(works):
                if outdone and best.has(bound, work.chosen):
                    passed += number
                    continue
                code = PEAK if place >= fit else code_of and code_of(work.chosen)
                m = grid.microbatches(work)
                kept = bounds.activations(grid, work, m) if m and not code else 0
                if code or state + kept > self._budget:
                    tally.reject(code or PEAK, {**grid.chosen, **work.chosen}, number, left)
                    continue
                seconds = bound.seconds
                if self._priced:
                    seconds = max(seconds, bounds.seconds(grid, work, m, scattered=scattered))
                closer = Bound(seconds, state + kept)
                if best.beyond(closer, (grid.chosen, work.chosen), left):
                    passed += number
                    continue
                yield closer, Core(grid, work, m, kept)
        tally.pass_over(passed)

    def _works_of(self, stem: Stem) -> Mapping[str, Sequence[Work]]:
        """The works of a stem by recompute, the fewest sequences first."""
        choices, train = stem.lists["work"], stem.subject.train
        if id(choices) not in self._works:
            by_recompute: dict[str, list[Work]] = {}
            for way in choices.ways:
                micro = way.get("train.micro_batch", train.micro_batch)
                recompute = way.get("train.recompute", train.recompute)
                words = spelling(recompute)
                place = self._numbers.setdefault((micro, words), len(self._numbers))
                by_recompute.setdefault(words, []).append(Work(place, way, micro, recompute))
            for found in by_recompute.values():
                found.sort(key=lambda work: work.micro_batch)
            self._works[id(choices)] = choices, by_recompute
        return self._works[id(choices)][1]

    def _subject_of(self, grid: Grid) -> Subject:
        """The job with a grid, on the first place that stands."""
        key = id(grid)
        if key not in self._subjects:
            subject = _with(grid.stem.subject, grid.schedule)
            self._subjects[key] = grid, self._standing(grid.stem, subject) or subject
        return self._subjects[key][1]

    # ── Order, sharding ───────────────────────────────────────────────────────

    def _split(self, core: Core, bound: Bound, best: Best) -> Iterator[tuple[Bound, Cut]]:
        """A core by what its ranks hold of the state."""
        grid, work, stem = core.grid, core.work, core.grid.stem
        chosen = {**grid.chosen, **work.chosen}
        if best.beyond(bound, (chosen,), stem.left("schedule", "work")):
            self.tally.pass_over(stem.number("schedule", "work"))
            return
        kept = core.activations + self._bounds.inside(grid, work)
        least = self._bounds.least_state(grid) + kept
        if least > self._budget:
            number, left = stem.number("schedule", "work"), stem.left("schedule", "work")
            self.tally.reject(PEAK, chosen, number, left)
            return
        placed = self._placed(grid)
        seconds = {flag: self._by_order(core, placed, bound, flag) for flag in placed.scattered}
        fastest = min((s for each in seconds.values() for s in each.values()), default=0.0)
        closer = Bound(max(bound.seconds, fastest), least)
        if placed.classes and best.beyond(closer, (chosen,), stem.left("schedule", "work")):
            self.tally.pass_over(stem.number("schedule", "work"))
            return
        methods = stem.lists["method"]
        self._refuse(stem, chosen, placed, ("method",))
        passed = 0
        for held in placed.classes:
            size = self._bounds.state(grid, held.zero, held.shards) + kept
            left = (*held.values, methods)
            number = len(held.places) * len(methods.ways)
            if size > self._budget:
                self.tally.reject(PEAK, chosen, number, left)
                continue
            each = seconds[held.zero >= 2]
            closer = Bound(min([each[order] for order in held.orders]), size)
            if best.beyond(closer, (chosen,), left):
                passed += number
                continue
            yield closer, Cut(core, held, each)
        self.tally.pass_over(passed)

    def _by_order(
        self, core: Core, placed: Placed, bound: Bound, scattered: bool
    ) -> Mapping[int, float]:
        """The least seconds in each order of a stem."""
        if not self._priced:
            return dict.fromkeys(placed.layouts, 0.0)
        known: dict[tuple[Any, ...], float] = {}
        found: dict[int, float] = {}
        for order, layout in placed.layouts.items():
            wires = placed.wires[order]
            if wires not in known:
                known[wires] = self._bounds.over_wires(
                    *(core.grid, core.work, core.microbatches, layout, wires),
                    zero=2 if scattered else 0,
                )
            found[order] = max(bound.seconds, known[wires])
        return found

    def _placed(self, grid: Grid) -> Placed:
        stem = grid.stem
        if id(stem) not in self._places:
            self._places[id(stem)] = stem, self._place(stem, self._subject_of(grid))
        return self._places[id(stem)][1]

    def _place(self, stem: Stem, standing: Subject) -> Placed:
        asking, ways = self.asking, stem.lists["state"]
        spec = replace(standing.spec, model=None)  # ranks and groups alone, no stages
        classes: dict[tuple[int, Shards], list[Place]] = {}
        refused: list[Refused] = []
        layouts: dict[int, Layout] = {}
        wires: dict[int, tuple[Any, ...]] = {}
        for order in stem.lists["order"].ways:
            ordered = _decided(standing, order)
            code = asking.fault(asking.lists["order"], ordered)
            if code is not None:
                refused.append(Refused(code, order, len(ways.ways), (ways,)))
                continue
            parallel = ordered.parallel
            code_of = asking.of("state", ordered)
            cut: dict[int, Layout | None] = {}
            for state in ways.ways:
                zero = state.get("parallel.zero", parallel.zero)
                shard = state.get("parallel.shard", parallel.shard)
                if shard not in cut:
                    each = _decided(ordered, state)
                    stands = degrees_hold(each)
                    placed = replace(spec, parallel=each.parallel)
                    cut[shard] = lay_out(placed) if stands else None
                layout = cut[shard]
                code = code_of(state, layout)
                if code is not None or layout is None:
                    refused.append(Refused(code or NO_GRID, {**order, **state}, 1, ()))
                    continue
                if id(order) not in wires:
                    layouts[id(order)] = layout
                    wires[id(order)] = tuple(
                        layout.reach(kind) if kind in layout.kinds else None for kind in WIRED
                    )
                classes.setdefault((zero, shards_of(layout)), []).append(Place(order, state))
        found = []
        for (zero, shards), places in classes.items():
            values = (
                Choices.of([place.order for place in places]),
                Choices.of([place.state for place in places]),
            )
            orders = tuple(dict.fromkeys(id(place.order) for place in places))
            found.append(Class(zero, shards, tuple(places), orders, values))
        scattered = tuple(dict.fromkeys(zero >= 2 for zero, _ in classes))
        return Placed(tuple(found), tuple(refused), layouts, wires, scattered)

    # ── Memory as it is, then time as it is ───────────────────────────────────

    def _weigh(self, cut: Cut, bound: Bound, best: Best) -> Iterator[tuple[Bound, Cut]]:
        """The memory of a cut, by method; then every layout of it."""
        core, held = cut.core, cut.held
        stem = core.grid.stem
        chosen = {**core.grid.chosen, **core.work.chosen}
        methods = stem.lists["method"]
        left = held.values if cut.method is not None else (*held.values, methods)
        number = len(held.places) * (1 if cut.method is not None else len(methods.ways))
        parts = (chosen,) if cut.method is None else (chosen, cut.method)
        if best.beyond(bound, parts, left):
            self.tally.pass_over(number)
            return
        if cut.method is not None:
            self._judge_all(cut, best)
            return
        for method in methods.ways:
            subject = self._subject(cut, held.places[0], method)
            parts = (chosen, method)
            # The ends of the pipeline are told without the ranks between.
            book = Book(subject.spec, subject.laid_out)
            ends = dict.fromkeys((0, subject.parallel.pp - 1))
            least = max(book.of_stage(stage).peak_bytes for stage in ends)
            if least <= self._budget:
                if best.beyond(Bound(bound.seconds, least), parts, held.values):
                    self.tally.pass_over(len(held.places))
                    continue
                memory = account(subject.spec, subject.laid_out)
                least = memory.worst.peak_bytes
                if least <= self._budget:
                    yield Bound(bound.seconds, least), replace(cut, method=method, memory=memory)
                    continue
            self.tally.reject(PEAK, {**chosen, **method}, len(held.places), held.values)

    def _judge_all(self, cut: Cut, best: Best) -> None:
        assert cut.method is not None and cut.memory is not None
        core = cut.core
        peak = cut.memory.worst.peak_bytes
        chosen = {**core.grid.chosen, **core.work.chosen}
        for place in cut.held.places:
            parts = (chosen, cut.method, place.order, place.state)
            if best.beyond(Bound(cut.seconds[id(place.order)], peak), parts):
                self.tally.pass_over(1)
                continue
            subject = self._subject(cut, place, cut.method)
            figures = score(subject, cut.memory)
            if best.beyond(Bound(best.slow(figures.step_seconds), peak), parts):
                self.tally.pass_over(1)
                continue
            self._judge(subject, figures, parts, best)

    def _subject(self, cut: Cut, place: Place, method: Values) -> Subject:
        """The whole job with one layout."""
        core = cut.core
        values = {**core.work.chosen, **place.order, **place.state, **method}
        subject = _with(self._subject_of(core.grid), {})
        return _decided(subject, values)

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


def _urgency(best: Best, bound: Bound, each: Grid | Core | Cut) -> tuple[float, float]:
    """The order in which sets of layouts are taken: no answer hangs on it, only how soon it comes.

    A looser bound counts as more, so that good layouts are known before the last of the grids.
    """
    first, second = best.key(*bound)
    return first * LOOSE[type(each)], second


def _decided(subject: Subject, values: Mapping[str, Any]) -> Subject:
    """The job with fields of lists decided, which nothing else follows from."""
    if not values:
        return subject
    changed: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        block, _, name = path.partition(".")
        changed.setdefault(block, {})[name] = value
    spec = subject.spec
    for block, fields_ in changed.items():
        spec = replace(spec, **{block: replace(getattr(spec, block), **fields_)})
    left = {path: open_ for path, open_ in subject.open.items() if path not in values}
    return replace(subject, spec=spec, open=left)


def _may_scatter(stem: Stem) -> bool:
    zero = stem.subject.parallel.zero
    return any(way.get("parallel.zero", zero) >= 2 for way in stem.lists["state"].ways)


def _with(subject: Subject, values: Mapping[str, Any]) -> Subject:
    """The job with more fields decided; dp is no longer open once it follows."""
    deeper = subject.with_values(values)
    if "parallel.dp" in deeper.open and deeper.parallel.dp is not None:
        left = {p: o for p, o in deeper.open.items() if p != "parallel.dp"}
        deeper = replace(deeper, open=left)
    return deeper
