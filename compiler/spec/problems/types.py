"""What a field takes, in words."""

from __future__ import annotations

from collections.abc import Sequence

from parlay.compiler.spec.schema import (
    Choice,
    FieldType,
    ListOf,
    Nested,
    Quantity,
    Switch,
    Text,
    Variant,
)
from parlay.dsl.units import Dimension, units_of


def describe(types: Sequence[FieldType]) -> str:
    """What a field takes, in words."""
    return " or ".join(_describe(type_) for type_ in types)


def _describe(type_: FieldType) -> str:
    match type_:
        case Quantity(dimension=Dimension.COUNT, integer=True):
            return "a whole number"
        case Quantity(dimension=Dimension.COUNT):
            return "a number"
        case Quantity(dimension=dimension):
            return f"{DIMENSIONS[dimension]} ({', '.join(units_of(dimension))})"
        case Switch():
            return "`on` or `off`"
        case Text():
            return 'a string, "…"'
        case Choice(values=values):
            return "one of " + ", ".join(values)
        case Variant(cases=cases):
            return "one of " + ", ".join(case.name for case in cases)
        case ListOf(item=item):
            return f"a list, each item {_describe(item)}"
        case Nested():
            return "a block"
        case _:
            return "options"


DIMENSIONS = {
    Dimension.COUNT: "a number",
    Dimension.DATA: "an amount of data",
    Dimension.RATE: "a rate of data",
    Dimension.COMPUTE: "a compute rate",
    Dimension.TIME: "a time",
    Dimension.SHARE: "a share",
    Dimension.MONEY: "a price",
}
