"""From a `.par` file to a checked plan and its files.

The public Python interface is the functions of this module: plain data on both sides, thin over
`pipeline`. Importing it costs next to nothing; each function imports what it needs when called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from os import PathLike
from types import ModuleType
from typing import Any

__all__ = ["Refused", "check", "emit", "layout", "ledger", "load", "plan"]


class Refused(ValueError):
    """A file has errors, so there is no layout, ledger or emitted file.

    `str()` is what `parlay check` prints; `diagnostics` are the entries of `check --json`.
    """

    def __init__(self, words: str, diagnostics: list[dict[str, Any]]) -> None:
        super().__init__(words)
        self.diagnostics = diagnostics


def load(path: str | PathLike[str], *, text: str | None = None) -> dict[str, Any]:
    """The file resolved: `{"version", "file", "phases", "diagnostics"}`.

    A phase is `{"name", "fields", "open", "targets"}`. `fields` gives every value by its path as
    `{"value", "shown", "origin", "words"}`: numbers in base units (bytes, seconds, bytes a second),
    `origin` one of `file`, `preset`, `default` and `derived`. What is in error or absent has the
    value None. With `text`, that is taken in place of what the file holds; it need not exist.
    """
    from parlay.compiler.interface import load

    return load(path, text)


def check(
    path: str | PathLike[str], *, targets: Iterable[str] = (), text: str | None = None
) -> dict[str, Any]:
    """Every diagnostic of a file: the document of `parlay check --json`. Nothing is raised."""
    from parlay.compiler.interface import check

    return check(path, tuple(targets), text)


def layout(
    path: str | PathLike[str], *, groups: bool = False, text: str | None = None
) -> dict[str, Any]:
    """Axes, stages and, with `groups`, every group's ranks: the document of `parlay layout --json`.

    Raises `Refused` for a file with errors.
    """
    from parlay.compiler.interface import layout

    return layout(path, groups, text)


def ledger(
    path: str | PathLike[str], *, formulas: bool = False, text: str | None = None
) -> dict[str, Any]:
    """Parameters, memory, communication and time: the document of `parlay ledger --json`.

    Raises `Refused` for a file with errors, without a model, or with degrees left open.
    """
    from parlay.compiler.interface import ledger

    return ledger(path, formulas, text)


def plan(
    path: str | PathLike[str],
    *,
    objective: str = "step_time",
    top: int = 5,
    targets: Iterable[str] = (),
    text: str | None = None,
) -> dict[str, Any]:
    """The best of all layouts that `auto` leaves open: the document of `parlay plan --json`.

    `phases` has a plan for each phase that leaves something open, the first of them at the root
    too; `best` is None where no layout is legal. Raises `Refused` for a file with errors, or one
    that leaves nothing open; `ValueError` for an unknown objective.
    """
    from parlay.compiler.interface import plan

    return plan(path, objective, top, tuple(targets), text)


def emit(path: str | PathLike[str], target: str, *, text: str | None = None) -> dict[str, str]:
    """The files of a back end: path inside the output folder -> text. Nothing is written.

    Raises `Refused` for a file with errors or one that the target cannot express, `KeyError` for
    an unknown target.
    """
    from parlay.compiler.interface import emit

    return emit(path, target, text)


class _Package(ModuleType):
    """The packages `layout` and `ledger` do not take the place of the functions of that name.

    Importing a package sets it as attribute of the one it lies in; this leaves the function there.
    `from parlay.compiler.layout import …` finds the package all the same.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
