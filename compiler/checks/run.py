"""Asking the rules, and what `allow` makes of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parlay.compiler.checks import allow
from parlay.compiler.checks.rules import all_rules
from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic


def subject_of(phase: Phase, before: Subject | None = None) -> Subject:
    """A phase as the rules see it, after the one `before`; fixes change the main text alone."""
    editable = phase.name == "main"
    return Subject(phase.spec, phase.origins, phase.open, editable, phase.targets, before=before)


def check_phases(
    phases: Sequence[Phase], targets: Sequence[str] = (), *, broken: bool = False
) -> tuple[Diagnostic, ...]:
    """What every general rule finds in the phases of a file.

    What holds for several phases is told once; what a later phase alone has wrong names it. Errors
    that the file allows come out as warnings. An `allow` is needless where no phase needs it, which
    is told unless the file is `broken`: then not every rule was asked.
    """
    rules = all_rules()
    asked = {rule.CODE: True for rule in rules}
    told: dict[object, Diagnostic] = {}
    subject = None
    for phase in phases:
        subject = subject_of(phase, subject)
        for rule in rules:
            if not subject.has(rule.READS):
                asked[rule.CODE] = False
                continue
            for each in rule.check(subject):
                key = (each.code, each.message, each.labels)
                if key not in told:
                    told[key] = _in_phase(each, phase, named=len(phases) > 1)
    found = list(told.values())
    allowed = [pair for phase in phases for pair in _allows(phase)]
    unasked = frozenset(code for code, all_asked in asked.items() if not all_asked or broken)
    return allow.settle(found, tuple(dict.fromkeys(allowed)), rules, unasked)


def _allows(phase: Phase) -> list[tuple[allow.Place, str]]:
    return [
        (allow.Place(each.code.text, each.code.span), each.reason.value) for each in phase.allows
    ]


def _in_phase(found: Diagnostic, phase: Phase, *, named: bool) -> Diagnostic:
    if not named or phase.name == "main":
        return found
    return replace(found, notes=(*found.notes, f'in phase "{phase.name}"'))
