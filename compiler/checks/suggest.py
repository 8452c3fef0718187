"""Layouts near the one asked for that hold: computed, and checked by the very rules.

The world stays, and with it cp; tp, pp and dp move, and what follows from them has to follow: the
experts' degrees, the chunks of a pipeline rank, the shards. What the rules would still refuse is
not offered, nor what the file's `auto in […]` excludes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import log2
from typing import Any

from parlay.compiler.checks import budget, faults, fix, follow, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Fix, Severity

MOST = 3
TRIED = 100
PRICED = 12
"""Layouts without an error that are looked at for one without a warning."""


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


def layouts(
    subject: Subject,
    *,
    fixed: tuple[str, ...] = (),
    allowed: Mapping[str, Container[int]] | None = None,
) -> Help:
    """Help and fixes for at most three nearest legal layouts of the same world.

    `fixed` are degrees that stay as they are, `allowed` the values that a path may take.
    """
    found = near_layouts(subject, fixed=fixed, allowed=allowed or {})
    return Help(
        tuple(near.words for near in found), tuple(fix for near in found for fix in near.fixes)
    )


def choices(
    subject: Subject, path: str, values: Iterable[int], *, wanted: int, most: int = MOST
) -> Help:
    """Help and fixes for at most `most` of `values` of one field, those nearest to `wanted`.

    Only values with which the rules that read the field find nothing; where all of them are too
    much for the memory, those that are legal but for it are named, and no fix is made of them.
    """
    if subject.searching:
        return Help()
    ranked = sorted(values, key=lambda value: (abs(log2(value / wanted)), value))
    other = [value for value in ranked if value != wanted]
    found = sorted(islice((v for v in other if holds(subject, {path: v})), most))
    name = path.rpartition(".")[2]
    if not found:
        legal = sorted(islice((v for v in other if _but_for_memory(subject, {path: v})), most))
        said = f"{name} = {words.listed(legal, 'or')} is legal, and does not fit the memory"
        return Help((said,)) if legal else Help()
    fixes = tuple(each for value in found for each in fix.set_fields(subject, {path: value}))
    return Help((f"{name} = {words.listed(found, 'or')} fits",), fixes)


def near_layouts(
    subject: Subject, *, fixed: tuple[str, ...], allowed: Mapping[str, Container[int]]
) -> tuple[Near, ...]:
    """At most three nearest legal layouts, nearest first; none while searching."""
    world = subject.world
    known = ("parallel.tp", "parallel.pp", "parallel.cp")
    if subject.searching or world is None or not subject.has(known):
        return ()
    clean: list[Mapping[str, Any]] = []
    warned: list[Mapping[str, Any]] = []
    for tp, pp, dp in islice(_candidates(subject, world, fixed), TRIED):
        degrees = follow.degrees(
            subject, {"parallel.tp": tp, "parallel.pp": pp, "parallel.dp": dp}, world
        )
        barred = any(degrees.get(path) not in values for path, values in allowed.items())
        if barred or not subject.admits(degrees):
            continue
        worst = faults.worst(subject, degrees)
        if worst is not Severity.ERROR and budget.fits(subject.with_values(degrees)):
            (warned if worst is Severity.WARNING else clean).append(degrees)
        if len(clean) == MOST or len(clean) + len(warned) >= PRICED:
            break
    return tuple(_near(subject, degrees, world) for degrees in (clean or warned)[:MOST])


def _candidates(
    subject: Subject, world: int, fixed: tuple[str, ...]
) -> Iterator[tuple[int, int, int]]:
    """tp, pp and dp of every grid of `world` ranks with the same cp, nearest first."""
    asked_tp, asked_pp = subject.parallel.tp, subject.parallel.pp
    free, rest = divmod(world, subject.parallel.cp)
    if rest:
        return
    ranked: list[tuple[float, int, int]] = []
    for tp in words.divisors(free):
        for pp in words.divisors(free // tp):
            moved = {"tp": tp != asked_tp, "pp": pp != asked_pp}
            if any(moved.values()) and not any(moved[axis] for axis in fixed):
                away = abs(log2(tp / asked_tp)) + abs(log2(pp / asked_pp))
                ranked.append((away, -tp, pp))
    for _, tp, pp in sorted(ranked):
        yield -tp, pp, free // -tp // pp


def holds(subject: Subject, values: Mapping[str, Any]) -> bool:
    """Whether the job with other `values`, by path, has no error in the rules that read them."""
    return subject.admits(values) and faults.worst(subject, values) is not Severity.ERROR


def _but_for_memory(subject: Subject, values: Mapping[str, Any]) -> bool:
    """Whether the only errors with other `values`, by path, are those of memory."""
    candidate = subject.with_values(values)
    if not subject.admits(values) or not faults.makes_a_grid(candidate, values):
        return False
    told = faults.told(candidate, values)
    return all(each.code.startswith("M") for each in told if each.severity is Severity.ERROR)


def _near(subject: Subject, degrees: Mapping[str, Any], world: int) -> Near:
    changed = {
        path: value
        for path, value in degrees.items()
        if path in _NAMED or value != subject.value(path)
    }
    title = ", ".join(f"{_name(path)} = {value}" for path, value in changed.items())
    said = f"{title} keeps {words.counted(world, 'GPU')}"
    figures = budget.figures(subject.with_values(degrees))
    if figures:
        said += f" and fits{figures}"
    edited = {
        path: value
        for path, value in changed.items()
        if value != subject.value(path) and (path != "parallel.dp" or subject.written(path))
    }
    return Near(said, fix.set_fields(subject, edited, title))


_NAMED = ("parallel.tp", "parallel.pp", "parallel.dp")


def _name(path: str) -> str:
    return path.rpartition(".")[2]
