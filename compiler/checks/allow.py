"""`allow CODE "reason"`: an error that its rule permits becomes a warning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from parlay.compiler.checks.rules import Rule
from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, Severity, error, warning
from parlay.dsl.source import Span


class Place(NamedTuple):
    """The code of one `allow` where it stands."""

    code: str
    span: Span


def settle(
    found: Sequence[Diagnostic],
    allowed: Sequence[tuple[Place, str]],
    rules: Sequence[Rule],
    unasked: frozenset[str],
) -> tuple[Diagnostic, ...]:
    """`found` with allowed errors as warnings, and what is wrong with the `allow`s themselves.

    `unasked` are rules that could not be asked: whether an `allow` of theirs is needless is open.
    """
    by_code = {rule.CODE: rule for rule in rules}
    reasons = {
        place.code: reason
        for place, reason in allowed
        if place.code in by_code and by_code[place.code].ALLOWED
    }
    settled = [
        _allowed(each, reasons[each.code])
        if each.code in reasons and each.severity is Severity.ERROR
        else each
        for each in found
    ]
    codes = {each.code for each in found if each.severity is Severity.ERROR}
    for place, _ in allowed:
        settled.extend(_about(place, by_code.get(place.code), codes, unasked, by_code))
    return tuple(settled)


def _allowed(found: Diagnostic, reason: str) -> Diagnostic:
    return replace(found.at(Severity.WARNING), notes=(*found.notes, f'allowed: "{reason}"'))


def _about(
    place: Place,
    rule: Rule | None,
    codes: set[str],
    unasked: frozenset[str],
    by_code: dict[str, Rule],
) -> Iterator[Diagnostic]:
    if rule is None:
        yield _unknown(place, [code for code, known in by_code.items() if known.ALLOWED])
    elif not rule.ALLOWED:
        yield error(
            "T291",
            f"{place.code} cannot be allowed",
            place.span,
            "no layout breaks this rule and still runs",
            notes=[f"{place.code}: {rule.TITLE}"],
        )
    elif place.code not in codes and place.code not in unasked:
        yield warning(
            "W290",
            f"`allow {place.code}` is needless",
            place.span,
            "nothing in the file breaks this rule",
            notes=[f"{place.code}: {rule.TITLE}"],
        )


def _unknown(place: Place, known: Sequence[str]) -> Diagnostic:
    fixes = [
        Fix(f"write `{code}`", (Edit(place.span, code),))
        for code in known
        if code.lower() == place.code.lower()
    ]
    return error(
        "T290",
        f"no rule has the code {place.code}",
        place.span,
        "unknown rule",
        help=[f"rules that may be allowed: {', '.join(known)}"],
        fixes=fixes,
    )
