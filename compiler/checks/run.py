"""Asking the rules, and what `allow` makes of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from parlay.compiler.checks import allow
from parlay.compiler.checks.rules import Rule, all_rules
from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic


def subject_of(phase: Phase, before: Subject | None = None) -> Subject:
    """A phase as the rules see it, after the one `before`; fixes change the main text alone."""
    editable = phase.name == "main"
    return Subject(phase.spec, phase.origins, phase.open, editable, phase.targets, before=before)


def run_rules(
    phase: Phase,
    targets: Sequence[str] = (),
    *,
    broken: bool = False,
    extra: Iterable[Rule] = (),
) -> tuple[Diagnostic, ...]:
    """What every general rule and every one of `extra` finds in one phase.

    `extra` are the rules of the asked `targets`. Errors that the file allows come out as warnings.
    A needless `allow` is told too, unless the file is `broken`: then not every rule was asked.
    """
    return _run((phase,), targets, broken=broken, extra=tuple(extra))


def check_phases(
    phases: Sequence[Phase],
    targets: Sequence[str] = (),
    *,
    broken: bool = False,
    extra: Iterable[Rule] = (),
) -> tuple[Diagnostic, ...]:
    """`run_rules` over all phases of a file.

    What holds for several phases is told once; what a later phase alone has wrong names it. An
    `allow` is needless where no phase needs it.
    """
    return _run(phases, targets, broken=broken, extra=tuple(extra))


def _run(
    phases: Sequence[Phase], targets: Sequence[str], *, broken: bool, extra: tuple[Rule, ...]
) -> tuple[Diagnostic, ...]:
    rules = (*all_rules(), *extra)
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
