"""The conditions of `parlay diff --fail-if`: `memory.peak > +2%`, `time.step > 3s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from parlay.compiler.spec.asserting import DAYS, VALUES
from parlay.dsl import syntax
from parlay.dsl.nearest import nearest
from parlay.dsl.parse import parse
from parlay.dsl.source import Source
from parlay.dsl.units import Dimension, Quantity, quantity

FORM: Final = re.compile(r"\s*([a-z_.]+)\s*(<=|>=|==|!=|<|>)\s*([+-]?)\s*(\S+)\s*")
_PLAIN: Final = (Dimension.COUNT, Dimension.SHARE)


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition on a figure of the second file.

    With a sign (`change`) it is on the change from the first: relative where `relative`, else in
    the figure's own unit.
    """

    text: str
    name: str
    operator: str
    change: bool
    relative: bool
    limit: Fraction

    def measured(self, before: Fraction | None, after: Fraction | None) -> Fraction | None:
        """What is held against the limit; None where a figure is missing."""
        if after is None or (self.change and before is None):
            return None
        if not self.change or before is None:
            return after
        if not self.relative:
            return after - before
        if before == 0:
            return Fraction(0) if after == 0 else Fraction(10**9 if after > 0 else -(10**9))
        return (after - before) / abs(before)

    def holds(self, value: Fraction) -> bool:
        """Whether the condition holds, that is, whether the gate fails."""
        return {
            "<": value < self.limit,
            "<=": value <= self.limit,
            ">": value > self.limit,
            ">=": value >= self.limit,
            "==": value == self.limit,
            "!=": value != self.limit,
        }[self.operator]


def gate(text: str) -> Gate | str:
    """The gate that `text` says, or what is wrong with it."""
    parts = FORM.fullmatch(text)
    if parts is None:
        return 'the form is NAME OPERATOR [+|-]NUMBER, such as "memory.peak > +2%"'
    name, operator, sign, number = parts.groups()
    if name not in VALUES:
        close = nearest(name, VALUES)
        meant = f"; nearest: {', '.join(close)}" if close else ""
        return f"no figure is called {name}{meant}"
    dimension = VALUES[name]
    read = _number(number, dimension)
    if read is None:
        return f"{number[:40]} is no number"
    if name == DAYS and read.dimension is Dimension.TIME:
        read = Quantity(read.value / 86400, dimension)
    relative = bool(sign) and read.dimension is Dimension.SHARE and dimension is not Dimension.SHARE
    relative = relative or (bool(sign) and number.endswith("%"))
    plain = read.dimension in _PLAIN and dimension in _PLAIN
    if not relative and read.dimension is not dimension and not plain:
        return f"{name} is {dimension.value}, {number} is {read.dimension.value}"
    limit = -read.value if sign == "-" else read.value
    return Gate(" ".join(text.split()), name, operator, bool(sign), relative, limit)


def _number(text: str, dimension: Dimension) -> Quantity | None:
    file, told = parse(Source("--fail-if", f"let limit = {text}"))
    if told or len(file.statements) != 1:
        return None
    let = file.statements[0]
    if not isinstance(let, syntax.Let) or not isinstance(let.value, syntax.Number):
        return None
    found = quantity(let.value, dimension)
    if not isinstance(found, Quantity):
        found = quantity(let.value, None)
    return found if isinstance(found, Quantity) else None
