"""The rules by their codes: an explicit table, each module imported when it is first asked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Final, Protocol, cast

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic


class Rule(Protocol):
    """One rule: a module of this room whose docstring is the page that `explain` prints.

    `READS` are the paths it reads; it is not asked where one of them is missing, in error or
    open. `ALLOWED` says whether `allow CODE "reason"` may turn its errors into warnings.
    """

    CODE: str
    TITLE: str
    READS: tuple[str, ...]
    ALLOWED: bool
    __doc__: str | None

    @staticmethod
    def check(subject: Subject, /) -> Iterable[Diagnostic]: ...


MODULES: Final = {
    # degrees and their product
    "L201": "l201_world",
    # attention and MLP
    "L202": "l202_heads",
    "L203": "l203_kv_heads",
}


@cache
def rule(code: str) -> Rule | None:
    """The rule with that code."""
    name = MODULES.get(code)
    return cast(Rule, import_module(f"{__package__}.{name}")) if name else None


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every general rule, in the order of the table."""
    return tuple(found for code in MODULES if (found := rule(code)) is not None)
