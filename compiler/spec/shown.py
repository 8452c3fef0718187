"""Resolved values as people read them, in labels and in `explain --field`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from parlay.compiler.spec.schema import FieldType, Quantity, Setting
from parlay.dsl.units import Dimension, show


def shown(value: Any, types: tuple[FieldType, ...]) -> str:
    """`8`, `85.5 GB`, `on`, `[tp, pp, dp]`, `adamw(lr = 0.0003, …)`."""
    match value:
        case None:
            return "absent"
        case bool():
            return "on" if value else "off"
        case int() | float():
            kind = next((t for t in types if isinstance(t, Quantity)), None)
            dimension = kind.dimension if kind else Dimension.COUNT
            if dimension is Dimension.COUNT and isinstance(value, int):
                return str(value)
            return show(Fraction(value), dimension)
        case tuple():
            return "[" + ", ".join(shown(item, types) for item in value) + "]"
        case Setting():
            given = {name: part for name, part in value.options.items() if part is not None}
            parts = [*value.flags, *(f"{name} = {shown(part, ())}" for name, part in given.items())]
            return f"{value.name}({', '.join(parts)})" if parts else value.name
    return str(value)
