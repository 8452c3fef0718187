"""The verdict: what the rules and the file's own asserts say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import Show, data, digits, seconds, share
from parlay.compiler.report.part import Part, Subject
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.diagnostics.order import count, in_order
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.units import Dimension

SHOWN: Final[Mapping[str, Show]] = {
    Dimension.DATA.value: data,
    Dimension.SHARE.value: share,
    Dimension.TIME.value: seconds,
}


@dataclass(frozen=True, slots=True)
class Said:
    """One diagnostic: its first line in parts, and the rest as a terminal shows it, in lines.

    `line` is where it points in file `file` of the job, 0 where that text is not there.
    """

    severity: str
    code: str
    message: str
    lines: tuple[str, ...]
    file: int
    line: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One assert of a phase."""

    text: str
    holds: bool
    value: Figure | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`words` is the verdict in one sentence; `kind` says `holds`, `warns` or `fails`."""

    words: str
    kind: str
    said: tuple[Said, ...]
    allowed: tuple[tuple[str, str], ...]


def verdict(subject: Subject) -> Verdict:
    """What stands of the checks, errors first."""
    told = sorted(in_order(subject.told), key=lambda one: one.severity is not Severity.ERROR)
    errors, warnings, notes = (count(told, severity) for severity in Severity)
    counted = [
        f"{number} {word}{'s' if number > 1 else ''}"
        for number, word in ((errors, "error"), (warnings, "warning"), (notes, "note"))
        if number
    ]
    listed = " and ".join(filter(None, (", ".join(counted[:-1]), *counted[-1:])))
    if errors:
        words, kind = f"does not hold: {listed}", "fails"
    else:
        words, kind = f"holds: no errors, {listed or 'no warnings'}", "warns" if warnings else ""
    said = tuple(_said(one, subject) for one in told)
    return Verdict(words, kind or "holds", said, tuple(dict.fromkeys(_allowed(subject))))


def _said(one: Diagnostic, subject: Subject) -> Said:
    # No control character is left in what `render` returns, so a line is a line.
    lines = render([one], subject.sources, width=96, summary=False).split("\n")[1:]
    names = list(subject.sources)
    file, line = 0, 0
    if one.span is not None and one.span.file in subject.sources:
        file = names.index(one.span.file)
        line = subject.sources[one.span.file].position(one.span.start).line
    shown = tuple(text for text in lines if text)
    return Said(str(one.severity), one.code, one.message, shown, file, line)


def _allowed(subject: Subject) -> Iterator[tuple[str, str]]:
    for part in subject.parts:
        for allow in part.phase.allows:
            yield allow.code.text, allow.reason.value


def claims(part: Part) -> tuple[Claim, ...]:
    """The asserts of a phase with their values."""
    found = part.ledger.at("asserts") or []
    return tuple(
        Claim(
            each["text"],
            each["holds"],
            part.ledger.figure(f"asserts.{number}.value", SHOWN.get(each["dimension"], digits)),
        )
        for number, each in enumerate(found)
    )
