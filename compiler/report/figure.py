"""Figures with the place they come from: every number of the page is one of a document of `--json`.

A figure names its path in the document, so that whoever reads the page can look it up, and a test
can hold the page to `parlay ledger --json`. A figure made of two others names both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.report.numbers import Show

OPERATIONS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "product": lambda a, b: a * b,
    "difference": lambda a, b: a - b,
    "share": lambda a, b: a / b,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number: `value` is the document's, written as JSON has it, and `shown` what people read.

    `paths` are its place below what it was asked of, or the places of the two that `operation`
    combines.
    """

    value: float
    shown: str
    paths: str
    operation: str = ""
    document: str = "ledger"

    @property
    def exact(self) -> str:
        """The value as `--json` prints it."""
        return json.dumps(self.value)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one phase, or of a part of it: `document` is that of `parlay NAME --json`."""

    document: Any
    name: str = "ledger"

    def at(self, path: str) -> Any:
        """What stands at a path such as `memory.rank_classes.3.peak_bytes`; None where nothing."""
        found: Any = self.document
        for key in path.split("."):
            if isinstance(found, list):
                found = found[int(key)]
            elif isinstance(found, Mapping):
                found = found.get(key)
            else:
                return None
        return found

    def below(self, path: str) -> Figures:
        """The figures of the part at `path`."""
        return Figures(self.at(path), self.name)

    def figure(self, path: str, show: Show) -> Figure | None:
        """The number at `path`; None where the document has none."""
        value = self.at(path)
        if value is None:
            return None
        return Figure(value, show(value), path, document=self.name)

    def combined(self, operation: str, first: str, second: str, show: Show) -> Figure | None:
        """The number that `operation` makes of two; None where one is missing, or by nothing."""
        a, b = self.at(first), self.at(second)
        if a is None or b is None or (operation == "share" and not b):
            return None
        value = OPERATIONS[operation](a, b)
        return Figure(value, show(value), f"{first} {second}", operation, self.name)
