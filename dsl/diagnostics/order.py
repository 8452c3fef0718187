"""Diagnostics in the order in which a file is read."""

from __future__ import annotations

from collections.abc import Iterable

from parlay.dsl.diagnostics.record import Diagnostic, Severity


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By place, each told once.

    Files stay in the order in which they first appear; within one, what has no place comes first;
    at one place the given order stays. Two are the same where code, severity, place and message
    are.
    """
    unique = {
        (one.code, one.severity, one.file, one.span, one.message): one
        for one in reversed(list(diagnostics))
    }
    kept = list(reversed(unique.values()))
    files = {file: rank for rank, file in enumerate(dict.fromkeys(one.file for one in kept))}
    return sorted(
        kept,
        key=lambda one: (
            files[one.file],
            *((one.span.start, one.span.end) if one.span else (-1, -1)),
        ),
    )


def count(diagnostics: Iterable[Diagnostic], severity: Severity) -> int:
    """How many there are of one severity."""
    return sum(one.severity is severity for one in diagnostics)
