"""What the rules find wrong with another layout of the same job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parlay.compiler.checks import rules
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, Severity


def told(candidate: Subject, changed: Mapping[str, Any] | None = None) -> Iterator[Diagnostic]:
    """Errors and warnings of the rules that read what has `changed`, by path; None asks all.

    Errors that the file allows are left out.
    """
    degrees = any(path.startswith("parallel.") for path in changed or ())
    for rule in rules.all_rules():
        concerned = changed is None or any(
            path in changed or (degrees and path.startswith(("layout", "parallel.")))
            for path in rule.READS
        )
        if not concerned or not candidate.has(rule.READS):
            continue
        if rule.ALLOWED and rule.CODE in candidate.origins.allowed:
            continue
        for each in rule.check(candidate):
            if each.severity is not Severity.NOTE:
                yield each


def makes_a_grid(candidate: Subject, changed: Mapping[str, Any]) -> bool:
    """Whether degrees that changed can be laid out."""
    degrees = any(path.startswith("parallel.") for path in changed)
    return not degrees or candidate.layout is not None


def worst(subject: Subject, values: Mapping[str, Any]) -> Severity | None:
    """The worst that is wrong with `values`, by path; no more is asked once there is an error."""
    candidate = subject.with_values(values)
    if not makes_a_grid(candidate, values):
        return Severity.ERROR
    found = None
    for each in told(candidate, values):
        if each.severity is Severity.ERROR:
            return Severity.ERROR
        found = Severity.WARNING
    return found
