"""The record of one diagnostic: facts only; how it looks is the renderers' business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from parlay.dsl.source import Span


class Severity(StrEnum):
    """How much it matters: an error stops, a warning does not, a note informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A place that takes part, with a few words under it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that a tool may apply as it stands."""

    title: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to tell.

    `code` is `L203`; `labels[0]` is the primary place, the rest are secondary. `span` is None
    only where no text exists to point at (a missing file): then `file` names it.
    `notes` carry the arithmetic, `help` what would work, `fixes` what a tool may apply.
    """

    code: str
    severity: Severity
    message: str
    file: str
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def at(self, severity: Severity) -> Diagnostic:
        """The same diagnostic with another severity."""
        return replace(self, severity=severity)


def _make(
    severity: Severity,
    code: str,
    message: str,
    span: Span,
    label: str,
    also: Sequence[tuple[Span, str]],
    notes: Sequence[str],
    help: Sequence[str],
    fixes: Sequence[Fix],
) -> Diagnostic:
    labels = (Label(span, label), *(Label(place, text) for place, text in also))
    return Diagnostic(
        code, severity, message, span.file, span, labels, tuple(notes), tuple(help), tuple(fixes)
    )


def error(
    code: str,
    message: str,
    span: Span,
    label: str = "",
    *,
    also: Sequence[tuple[Span, str]] = (),
    notes: Sequence[str] = (),
    help: Sequence[str] = (),
    fixes: Sequence[Fix] = (),
) -> Diagnostic:
    """An error at `span`, `label` under it; `also` are the secondary places with their words."""
    return _make(Severity.ERROR, code, message, span, label, also, notes, help, fixes)


def warning(
    code: str,
    message: str,
    span: Span,
    label: str = "",
    *,
    also: Sequence[tuple[Span, str]] = (),
    notes: Sequence[str] = (),
    help: Sequence[str] = (),
    fixes: Sequence[Fix] = (),
) -> Diagnostic:
    """A warning, as `error` takes it."""
    return _make(Severity.WARNING, code, message, span, label, also, notes, help, fixes)


def note(
    code: str,
    message: str,
    span: Span,
    label: str = "",
    *,
    also: Sequence[tuple[Span, str]] = (),
    notes: Sequence[str] = (),
    help: Sequence[str] = (),
    fixes: Sequence[Fix] = (),
) -> Diagnostic:
    """A note, as `error` takes it."""
    return _make(Severity.NOTE, code, message, span, label, also, notes, help, fixes)
