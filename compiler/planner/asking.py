"""Which rule is asked when: as soon as everything that it reads is decided, and once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from parlay.compiler.checks import all_rules
from parlay.compiler.checks.rules import Rule
from parlay.compiler.checks.subject import LAYOUT, WHOLE, Subject
from parlay.compiler.spec.blocks import Parallel
from parlay.compiler.spec.schema import Derived, fields_of
from parlay.dsl.diagnostics import Severity

PEAK: Final = "M204"
"""The peak of a step, which the score of a layout has: it is not worked out twice."""
LAID_OUT: Final = (*("tp", "cp", "pp", "dp", "ep", "etp", "shard", "order", "schedule", "stages"),)
"""The fields of `parallel` that a layout follows from."""


def rounds(subject: Subject, paths: Sequence[str]) -> tuple[tuple[Rule, ...], ...]:
    """The rules to ask before the first of `paths` is decided, after it, and after each other.

    Rules that never tell an error are left out, and those whose errors the file allows.
    """
    level = _levels(subject, paths)
    rounds: list[list[Rule]] = [[] for _ in range(len(paths) + 1)]
    for rule in judges():
        if not (rule.ALLOWED and rule.CODE in subject.origins.allowed):
            rounds[max((level(path) for path in rule.READS), default=0)].append(rule)
    return tuple(map(tuple, rounds))


@cache
def judges() -> tuple[Rule, ...]:
    """The general rules that tell errors, but the peak's: those that only warn are left out."""
    # A rule that refuses names the maker of errors, or the helper that makes them for several.
    makers = {"error", "indivisible", "divide"}
    return tuple(
        rule for rule in all_rules() if rule.CODE != PEAK and not makers.isdisjoint(vars(rule))
    )


def fault(rule: Rule, subject: Subject) -> str | None:
    """The code of the first error that a rule finds; None where it finds none."""
    if not subject.has(rule.READS):
        return None
    return next(
        (each.code for each in rule.check(subject) if each.severity is Severity.ERROR), None
    )


class _levels:
    """After how many decisions a path has its value for good."""

    def __init__(self, subject: Subject, paths: Sequence[str]) -> None:
        self.known: dict[str, int] = {path: index + 1 for index, path in enumerate(paths)}
        self.last = len(paths)
        for _ in range(2):  # shard follows from dp, which follows from the degrees
            for schema in fields_of(Parallel):
                path, default = f"parallel.{schema.name}", schema.default
                if isinstance(default, Derived) and subject.derived(path):
                    self.known[path] = max(map(self, default.paths))
        self.known[LAYOUT] = max(self(f"parallel.{name}") for name in LAID_OUT)
        self.known[WHOLE] = self.last

    def __call__(self, path: Any) -> int:
        while path:
            if path in self.known:
                return self.known[path]
            path = path.rpartition(".")[0]
        return 0
