"""Arithmetic on quantities: exact values, dimensions checked, size bounded."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, Protocol

from parlay.compiler.spec import problems
from parlay.dsl import syntax, units
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Span
from parlay.dsl.units import Dimension, Quantity

LARGEST: Final = Fraction(10**60)
MOST_BITS: Final = 2048

_PRODUCTS: Final = {
    frozenset({Dimension.RATE, Dimension.TIME}): Dimension.DATA,
    frozenset({Dimension.COMPUTE, Dimension.TIME}): Dimension.COUNT,
}
_QUOTIENTS: Final = {
    (Dimension.DATA, Dimension.TIME): Dimension.RATE,
    (Dimension.DATA, Dimension.RATE): Dimension.TIME,
    (Dimension.COUNT, Dimension.COMPUTE): Dimension.TIME,
    (Dimension.COUNT, Dimension.TIME): Dimension.COMPUTE,
}
_PLAIN: Final = (Dimension.COUNT, Dimension.SHARE)


class Names(Protocol):
    """What stands behind references, and takes the diagnostics."""

    def refer(self, ref: syntax.Ref) -> Quantity | None: ...

    def tell(self, diagnostic: Diagnostic) -> None: ...


def number(names: Names, expr: syntax.Expr, wanted: Dimension | None) -> Quantity | None:
    """The value of a numeric expression, or None with the reason told.

    `wanted` only decides what the unit `B` means; the caller compares dimensions.
    """
    match expr:
        case syntax.Group():
            return number(names, expr.inner, wanted)
        case syntax.Number():
            return _literal(names, expr, wanted)
        case syntax.Ref():
            return names.refer(expr)
        case syntax.Unary():
            inner = number(names, expr.operand, wanted)
            return None if inner is None else Quantity(-inner.value, inner.dimension)
        case syntax.Binary():
            return _chain(names, expr, wanted)
        case syntax.Call():
            return _function(names, expr, wanted)
    names.tell(problems.wrong_type("an expression", (), expr, kind_of(expr)))
    return None


def kind_of(expr: syntax.Expr) -> str:
    """What an expression is, in words."""
    match expr:
        case syntax.Number() | syntax.Unary() | syntax.Binary():
            return "a number"
        case syntax.String():
            return "a string"
        case syntax.Switch():
            return "a switch"
        case syntax.ListExpr():
            return "a list"
        case syntax.Auto():
            return "`auto`"
        case syntax.Call():
            return f"`{expr.name.text}(…)`"
        case syntax.Ref():
            return "`" + ".".join(name.text for name in expr.path) + "`"
    return "an expression"


def _literal(names: Names, expr: syntax.Number, wanted: Dimension | None) -> Quantity | None:
    read = units.quantity(expr, wanted)
    match read:
        case Quantity():
            return read
        case units.Ambiguous():
            names.tell(problems.ambiguous_unit(expr))
            return None
        case units.Mismatch():
            # Told by whoever knows what the value is for.
            return units.Quantity(expr.value * _factor(expr.unit), read.found)
    return None


def _factor(unit: str) -> Fraction:
    return units.UNITS[unit][-1][1]


def _chain(names: Names, expr: syntax.Binary, wanted: Dimension | None) -> Quantity | None:
    """A left-leaning chain without recursion, so that `1 + 1 + … + 1` has no depth."""
    spine: list[syntax.Binary] = []
    left: syntax.Expr = expr
    while isinstance(left, syntax.Binary):
        spine.append(left)
        left = left.left
    value = number(names, left, wanted)
    for step in reversed(spine):
        right = number(names, step.right, wanted)
        if value is None or right is None:
            value = None
            continue
        value = _apply(names, step, value, right)
    return value


def _apply(names: Names, expr: syntax.Binary, left: Quantity, right: Quantity) -> Quantity | None:
    operator = expr.operator
    if operator in ("/", "//") and right.value == 0:
        names.tell(problems.division_by_zero(expr.right.span))
        return None
    dimension = _dimension(operator, left.dimension, right.dimension)
    if dimension is None:
        names.tell(problems.mixed_dimensions(operator, left.dimension, right.dimension, expr.span))
        return None
    match operator:
        case "+":
            value = left.value + right.value
        case "-":
            value = left.value - right.value
        case "*":
            value = left.value * right.value
        case "/":
            value = left.value / right.value
        case "//":
            value = Fraction(left.value // right.value)
    return _bounded(names, value, dimension, expr.span)


def _bounded(names: Names, value: Fraction, dimension: Dimension, span: Span) -> Quantity | None:
    if abs(value) > LARGEST or value.denominator.bit_length() > MOST_BITS:
        names.tell(problems.too_large(span))
        return None
    return Quantity(value, dimension)


def _dimension(operator: str, left: Dimension, right: Dimension) -> Dimension | None:
    """The dimension of a result, None where the two do not join."""
    if operator in "+-":
        if left is right:
            return left
        return Dimension.COUNT if left in _PLAIN and right in _PLAIN else None
    if operator == "*":
        if left in _PLAIN or right in _PLAIN:
            other = right if left in _PLAIN else left
            if left in _PLAIN and right in _PLAIN:
                both_share = left is right is Dimension.SHARE
                return Dimension.SHARE if both_share else Dimension.COUNT
            return other
        return _PRODUCTS.get(frozenset({left, right}))
    if left is right:
        return Dimension.COUNT
    if right in _PLAIN:
        return left
    return _QUOTIENTS.get((left, right))


def _function(names: Names, expr: syntax.Call, wanted: Dimension | None) -> Quantity | None:
    name = expr.name.text
    if name not in ("min", "max", "ceil", "floor"):
        ref = syntax.Ref((expr.name,), expr.name.span)
        names.tell(problems.unknown_name(ref, ("min", "max", "ceil", "floor")))
        return None
    single = name in ("ceil", "floor")
    if any(a.name is not None for a in expr.arguments) or (
        len(expr.arguments) != 1 if single else not expr.arguments
    ):
        takes = "one number" if single else "numbers"
        names.tell(problems.wrong_arguments(name, takes, expr.span))
        return None
    values = [number(names, argument.value, wanted) for argument in expr.arguments]
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    first = known[0]
    if single:
        rounded = math.ceil(first.value) if name == "ceil" else math.floor(first.value)
        return Quantity(Fraction(rounded), first.dimension)
    for value, argument in zip(known[1:], expr.arguments[1:], strict=True):
        if value.dimension is not first.dimension:
            names.tell(
                problems.mixed_dimensions(",", first.dimension, value.dimension, argument.span)
            )
            return None
    chosen = min if name == "min" else max
    return Quantity(chosen(value.value for value in known), first.dimension)
