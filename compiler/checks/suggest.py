"""Layouts near the one asked for that hold: computed, and checked by the very rules.

Only tp, pp and dp move; the world stays. What the rules would still refuse is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import log2
from typing import Any

from parlay.compiler.checks import fix, rules, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Fix, Severity

MOST = 3
TRIED = 100


@dataclass(frozen=True, slots=True)
class Near:
    """One legal layout: what it says, and how the file gets there."""

    words: str
    fixes: tuple[Fix, ...]


@dataclass(frozen=True, slots=True)
class Help:
    """The keyword arguments of a diagnostic that carry suggestions."""

    help: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()


def layouts(subject: Subject) -> Help:
    """Help and fixes for at most three nearest legal layouts of the same world."""
    found = near_layouts(subject)
    return Help(
        tuple(near.words for near in found), tuple(fix for near in found for fix in near.fixes)
    )


def choices(
    subject: Subject, path: str, values: Iterable[int], *, wanted: int, most: int = MOST
) -> Help:
    """Help and fixes for at most `most` of `values` of one field, those nearest to `wanted`.

    Only values with which the rules that read the field find nothing.
    """
    if subject.searching:
        return Help()
    ranked = sorted(values, key=lambda value: (abs(log2(value / wanted)), value))
    good = islice((v for v in ranked if v != wanted and holds(subject, {path: v})), most)
    found = sorted(good)
    if not found:
        return Help()
    name = path.rpartition(".")[2]
    fixes = tuple(each for value in found for each in fix.set_fields(subject, {path: value}))
    return Help((f"{name} = {words.listed(found, 'or')} fits",), fixes)


def near_layouts(subject: Subject) -> tuple[Near, ...]:
    """At most three nearest legal layouts, nearest first; none while searching."""
    world = subject.world
    known = ("parallel.tp", "parallel.pp", "parallel.cp")
    if subject.searching or world is None or not subject.has(known):
        return ()
    clean: list[Mapping[str, int]] = []
    warned: list[Mapping[str, int]] = []
    for tp, pp, dp in islice(_candidates(subject, world), TRIED):
        degrees = {"parallel.tp": tp, "parallel.pp": pp, "parallel.dp": dp}
        worst = _worst(subject, degrees)
        if worst is not Severity.ERROR:
            (warned if worst is Severity.WARNING else clean).append(degrees)
        if len(clean) == MOST:
            break
    return tuple(_near(subject, degrees, world) for degrees in (clean or warned)[:MOST])


def _candidates(subject: Subject, world: int) -> Iterator[tuple[int, int, int]]:
    """tp, pp and dp of every grid of `world` ranks with the same cp, nearest first."""
    asked_tp, asked_pp = subject.parallel.tp, subject.parallel.pp
    free, rest = divmod(world, subject.parallel.cp)
    if rest:
        return
    ranked: list[tuple[float, int, int]] = []
    for tp in words.divisors(free):
        for pp in words.divisors(free // tp):
            if (tp, pp) != (asked_tp, asked_pp):
                away = abs(log2(tp / asked_tp)) + abs(log2(pp / asked_pp))
                ranked.append((away, -tp, pp))
    for _, tp, pp in sorted(ranked):
        yield -tp, pp, free // -tp // pp


def holds(subject: Subject, values: Mapping[str, Any]) -> bool:
    """Whether the job with other `values`, by path, has no error in the rules that read them."""
    return _worst(subject, values) is not Severity.ERROR


def _worst(subject: Subject, values: Mapping[str, Any]) -> Severity | None:
    """The worst that the rules which read what changes find, but for what the file allows."""
    candidate = subject.with_values(values)
    degrees = any(path.startswith("parallel.") for path in values)
    if degrees and candidate.layout is None:
        return Severity.ERROR
    worst = None
    for rule in rules.all_rules():
        concerned = any(
            path in values or (degrees and path.startswith(("layout", "parallel.")))
            for path in rule.READS
        )
        if not concerned or not candidate.has(rule.READS):
            continue
        if rule.ALLOWED and rule.CODE in subject.origins.allowed:
            continue
        for told in rule.check(candidate):
            if told.severity is Severity.ERROR:
                return Severity.ERROR
            if told.severity is Severity.WARNING:
                worst = Severity.WARNING
    return worst


def _near(subject: Subject, degrees: Mapping[str, int], world: int) -> Near:
    from parlay.compiler.checks.budget import fullest

    title = ", ".join(f"{path.rpartition('.')[2]} = {value}" for path, value in degrees.items())
    said = f"{title} keeps {words.counted(world, 'GPU')}"
    state = fullest(subject.with_values(degrees))
    if state is not None:
        needed, budget = words.memory(state.total), words.memory(state.budget)
        said += f" and fits (weights and states {needed} of {budget})"
    edited = {
        path: value
        for path, value in degrees.items()
        if value != subject.value(path) and (path != "parallel.dp" or subject.written(path))
    }
    return Near(said, fix.set_fields(subject, edited, title))
