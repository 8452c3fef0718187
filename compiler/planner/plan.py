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
from parlay.compiler.planner.score import budget_bytes
from parlay.compiler.planner.search import Search
from parlay.compiler.planner.space import Counter, fields
from parlay.compiler.planner.tally import Candidate, Judge, Refusal, Tally
from parlay.compiler.spec.evaluate import Evaluator
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Severity
from parlay.dsl.source import Source
from parlay.dsl.units import Dimension, Quantity

MOST: Final = 20_000_000
"""Layouts that are searched; beyond them a file is asked to say more."""
ASSERT = "assert"
"""What stands for a code where a layout does not hold an `assert` of the file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a search found; `fewest_gpus` is over every number of nodes up to the file's, None where
    none of them holds a legal layout."""

    phase: Phase
    subject: Subject
    best: Best
    tally: Tally
    fewest_gpus: int | None
    seconds: float


def layouts(phase: Phase) -> int:
    """How many layouts the open fields of a phase leave."""
    subject = subject_of(phase)
    return Counter(subject).below(fields(subject), {})


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

    search, best = Search(subject, further), Best(objective, most)
    search.run(best)
    fewest = _fewest(subject, further, found=bool(best.top))
    return Plan(phase, subject, best, search.tally, fewest, perf_counter() - started)


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


def _fewest(subject: Subject, further: Judge, *, found: bool) -> int | None:
    """The fewest GPUs on which a layout is legal: over every number of whole nodes, ascending.

    Below the first number whose memory holds the whole state once, none is asked.
    """
    nodes, gpus = subject.value("cluster.nodes"), subject.value("cluster.node.gpus")
    state = total(subject.model) * bytes_per_parameter(subject.spec.train).total
    host = subject.parallel.offload.name != "none"
    each = gpus * max(1, budget_bytes(subject.spec))
    for fewer in range(1 if host else max(1, int(state // each)), nodes):
        search = Search(subject.with_values({"cluster.nodes": fewer}), further)
        first = Best("headroom", 1, first=True)
        search.run(first)
        if first.top:
            return int(fewer * gpus)
    return int(nodes * gpus) if found else None
