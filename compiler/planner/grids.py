"""Stems by schedule, and the works on them: the shared parts of all layouts on a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from parlay.compiler.checks.degrees import stages_hold
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.time.step import held_by_rank
from parlay.compiler.planner.asking import Asking
from parlay.compiler.planner.deciding import standing, with_values
from parlay.compiler.planner.line import Line
from parlay.compiler.planner.sets import Grid, Work
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.stem import Choices, Stem, Values
from parlay.compiler.planner.stems import NO_GRID
from parlay.compiler.planner.tally import Tally
from parlay.compiler.spec.blocks import Spec


class Grids:
    """Grids of stems; what a rule refuses of schedules is counted in `tally`."""

    def __init__(self, asking: Asking, tally: Tally) -> None:
        self.asking, self.tally = asking, tally
        self._works: dict[int, tuple[Choices, Mapping[str, Sequence[Work]]]] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        self._lines: dict[tuple[int, str], Line] = {}
        self._held: dict[tuple[object, ...], Parameters] = {}
        self._subjects: dict[int, tuple[Grid, Subject]] = {}

    def of(self, stem: Stem, refuse: Callable[[Stem, Values, Subject], None]) -> Iterator[Grid]:
        """The grids of a stem; `refuse` counts a schedule on which no place stands."""
        code_of = self.asking.of("schedule", stem.subject)
        parallel = stem.subject.parallel
        for chosen in stem.lists["schedule"].ways:
            every = {**stem.chosen, **chosen}
            spec = stem.subject.spec
            if chosen:
                schedule = chosen["parallel.schedule"]
                spec = replace(spec, parallel=replace(parallel, schedule=schedule))
            code = code_of(chosen)
            if code is None and not stages_hold(spec.model, spec.parallel):
                code = NO_GRID
            if code is not None:
                self.tally.reject(code, every, stem.number("schedule"), stem.left("schedule"))
                continue
            line = self._line(stem, chosen, spec)
            if line is None:
                refuse(stem, every, with_values(stem.subject, chosen))
                continue
            yield Grid(stem, every, chosen, spec, line, self._holds(spec, line))

    def works(self, stem: Stem) -> Mapping[str, Sequence[Work]]:
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

    def subject(self, grid: Grid) -> Subject:
        """The job with a grid, on the first place that stands."""
        key = id(grid)
        if key not in self._subjects:
            subject = with_values(grid.stem.subject, grid.schedule)
            self._subjects[key] = grid, standing(grid.stem, subject) or subject
        return self._subjects[key][1]

    def _line(self, stem: Stem, chosen: Values, spec: Spec) -> Line | None:
        """The pipeline of a stem and a schedule; None where no place stands on it."""
        key = (spec.parallel.pp, spelling(spec.parallel.schedule))
        if key not in self._lines:
            stands = standing(stem, with_values(stem.subject, chosen))
            if stands is None:
                return None
            self._lines[key] = Line.of(stands.spec, stands.laid_out)
        return self._lines[key]

    def _holds(self, spec: Spec, line: Line) -> Parameters:
        """The parameters of rank 0."""
        parallel = spec.parallel
        key = (line.words, parallel.pp, parallel.tp, parallel.ep, parallel.etp)
        if key not in self._held:
            self._held[key] = held_by_rank(spec, line.layout, 0)
        return self._held[key]
