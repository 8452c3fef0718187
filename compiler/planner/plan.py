"""One phase planned: the search, judged also by its asserts and targets, and the fewest GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from time import perf_counter
from typing import Any, Final

from parlay.compiler.backends import refusals
from parlay.compiler.checks import subject_of
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.asserts import judge
from parlay.compiler.ledger.document import ledger
from parlay.compiler.ledger.parameters import total
from parlay.compiler.ledger.state import bytes_per_parameter
from parlay.compiler.planner.best import Best
from parlay.compiler.planner.gap import Gap
from parlay.compiler.planner.score import budget_bytes
from parlay.compiler.planner.search import Search
from parlay.compiler.planner.sets import Bound
from parlay.compiler.planner.space import Counter, fields
from parlay.compiler.planner.stem import LATE
from parlay.compiler.planner.tally import Candidate, Judge, Refusal, Tally
from parlay.compiler.spec.evaluate import Evaluator
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Severity
from parlay.dsl.source import Source
from parlay.dsl.units import Dimension, Quantity

WHOLE: Final = 20_000_000
"""Layouts that are searched to the end."""
MOST: Final = 10_000
"""Sets of layouts that a search of more takes, some milliseconds each; then it tells its gap."""
DEGREES: Final = 100_000
"""Sets of degrees that are listed; beyond them a file is asked to say more."""
FEWER: Final = 1_000
"""Sets that such a search takes on fewer nodes than the file's, to know whether one is legal."""
FEWEST: Final = 3_000
"""The same over all numbers of nodes."""
ASSERT = "assert"
"""What stands for a code where a layout does not hold an `assert` of the file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a search found, and the `gap` between it and what there may be, None where it is exact.

    `fewest_gpus` is over every number of nodes up to the file's, None where no legal layout is
    known on any; no fewer than `fewest_at_least` have one, which is the same where it is settled.
    """

    phase: Phase
    subject: Subject
    best: Best
    tally: Tally
    gap: Gap | None
    fewest_gpus: int | None
    fewest_at_least: int | None
    seconds: float

    def proven(self, found: Candidate, bound: Bound | None = None) -> bool:
        """Whether no layout that was not looked into comes before `found`; `bound` is the least of
        those in question, by default of all."""
        if self.gap is None:
            return True
        if bound is None:
            bound = min(self.gap.front, key=lambda each: self.best.key(*each))
        score = found.score
        return self.best.key(score.step_seconds, score.peak_bytes) <= self.best.key(*bound)


def layouts(phase: Phase) -> int:
    """How many layouts the open fields of a phase leave."""
    subject = subject_of(phase)
    return Counter(subject).below(fields(subject), {})


def degrees(phase: Phase) -> int:
    """How many sets of degrees they leave, each with all that hangs on it."""
    subject = subject_of(phase)
    early = tuple(each for each in fields(subject) if each.path not in LATE)
    return Counter(subject).below(early, {})


def plan(
    phase: Phase,
    sources: Mapping[str, Source],
    *,
    objective: str = "step_time",
    most: int = 5,
    targets: Sequence[str] = (),
) -> Plan:
    """Plans a phase that is clean as far as it is decided."""
    started = perf_counter()
    subject = subject_of(phase)

    def further(found: Candidate) -> Refusal | None:
        return _further(phase, found, sources, targets)

    large = layouts(phase) > WHOLE
    search, best = Search(subject, further, MOST if large else None), Best(objective, most)
    search.run(best)
    found, settled = bool(best.top), search.settled
    fewest = _fewest(subject, further, found=found, settled=settled, large=large)
    return Plan(phase, subject, best, search.tally, search.gap, *fewest, perf_counter() - started)


def settled(phase: Phase, found: Candidate) -> Phase:
    """The phase with a layout in place of what was open."""
    evaluator = phase.evaluator
    if evaluator is not None:
        evaluator = copy(evaluator)
        evaluator.values = {**evaluator.values, **_values(found.subject, evaluator.values)}
        evaluator.open = {}
        evaluator.diagnostics = []
        evaluator.exact = {**evaluator.exact, **_exact(evaluator)}
    return replace(phase, spec=found.subject.spec, open={}, evaluator=evaluator)


def _values(subject: Subject, known: Iterable[str]) -> dict[str, Any]:
    paths = [path for path in known if path.startswith(("parallel.", "train."))]
    return {path: subject.value(path) for path in paths}


def _exact(evaluator: Evaluator) -> dict[str, Quantity]:
    return {
        path: Quantity(Fraction(value), Dimension.COUNT)
        for path, value in evaluator.values.items()
        if path.startswith("parallel.") and isinstance(value, int) and not isinstance(value, bool)
    }


def _further(
    phase: Phase, found: Candidate, sources: Mapping[str, Source], targets: Sequence[str]
) -> Refusal | None:
    """The first refusal of a target, or an assert that does not hold."""
    if not targets and not phase.asserts:
        return None
    whole = settled(phase, found)
    for target in targets:
        for told in refusals(target, whole, targets):
            if told.severity is Severity.ERROR:
                return Refusal(told.code, told.message)
    if phase.asserts:
        book = ledger(whole, found.subject.laid_out)
        for verdict in judge(whole, book, sources).verdicts:
            if not verdict.holds:
                return Refusal(ASSERT, verdict.text)
    return None


def _fewest(
    subject: Subject, further: Judge, *, found: bool, settled: bool, large: bool
) -> tuple[int | None, int | None]:
    """The fewest GPUs on which a layout is known to be legal, over every number of whole nodes, and
    the fewest on which one may be.

    Below the first number whose memory holds the whole state once, none is asked. From the first
    number on that takes too long to settle, halves of the file's nodes are asked alone.
    """
    nodes, gpus = subject.value("cluster.nodes"), subject.value("cluster.node.gpus")
    state = total(subject.model) * bytes_per_parameter(subject.spec.train).total
    host = subject.parallel.offload.name != "none"
    each = gpus * max(1, budget_bytes(subject.spec))
    first = 1 if host else max(1, int(state // each))
    left = FEWEST

    def holds(fewer: int) -> bool | None:
        """Whether a layout is legal on so many nodes; None where that is not settled."""
        nonlocal left
        most = min(left, FEWER) if large else None
        search = Search(subject.with_values({"cluster.nodes": fewer}), further, most)
        one = Best("headroom", 1, first=True)
        search.run(one)
        left -= search.taken
        return True if one.top else (False if search.settled else None)

    here = nodes if found else None
    unknown = nodes if found or not settled else None
    for fewer in range(first, nodes):
        told = holds(fewer)
        if told:
            return fewer * gpus, fewer * gpus
        if told is None:
            unknown = fewer
            half = nodes
            while here is not None and half // 2 > unknown and left > 0 and holds(half // 2):
                half //= 2
                here = half
            break
    return here and here * gpus, unknown and unknown * gpus
