"""The words of what can be wrong with values: their types, units, bounds and choices."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from parlay.compiler.spec.problems.names import meant
from parlay.compiler.spec.problems.types import DIMENSIONS, describe
from parlay.compiler.spec.schema import (
    FieldType,
    Quantity,
)
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, error, note
from parlay.dsl.source import Span
from parlay.dsl.units import Dimension, literal, show, units_of


def wrong_type(field: str, types: Sequence[FieldType], expr: syntax.Expr, found: str) -> Diagnostic:
    """T101."""
    return error(
        "T101", f"`{field}` needs {describe(types)}, not {found}", expr.span, f"this is {found}"
    )


def wrong_dimension(what: str, wanted: Dimension, found: Dimension, span: Span) -> Diagnostic:
    """T102."""
    units = ", ".join(units_of(wanted)) or "no unit"
    return error(
        "T102",
        f"{what} needs {DIMENSIONS[wanted]}, not {DIMENSIONS[found]}",
        span,
        f"dimension {found.value}, where {wanted.value} is needed",
        help=[f"units of {wanted.value}: {units}"],
    )


def mixed_dimensions(operator: str, left: Dimension, right: Dimension, span: Span) -> Diagnostic:
    """T103."""
    return error(
        "T103",
        f"`{operator}` does not join {DIMENSIONS[left]} and {DIMENSIONS[right]}",
        span,
        f"{left.value} {operator} {right.value}",
    )


def ambiguous_unit(number: syntax.Number) -> Diagnostic:
    """T104: `7B` where no field says whether bytes or 10^9 are meant."""
    billions = literal(number.value * 10**9, Dimension.COUNT)
    giga = literal(number.value * 10**9, Dimension.DATA)
    return error(
        "T104",
        f"`{number.text}` may be 10^9 or bytes, and nothing here says which",
        number.span,
        "two readings",
        fixes=[
            Fix(f"write `{billions}`, a count", (Edit(number.span, billions),)),
            Fix(f"write `{giga}`, data", (Edit(number.span, giga),)),
        ],
        help=[f"`{billions}` is the count, `{giga}` is that many billion bytes"],
    )


def not_whole(field: str, value: Fraction, span: Span) -> Diagnostic:
    """T105."""
    return error(
        "T105",
        f"`{field}` needs a whole number",
        span,
        f"this is {float(value):g}",
        notes=[
            f"{value.numerator} / {value.denominator} leaves {value.numerator % value.denominator}"
        ],
    )


def out_of_bounds(field: str, value: Fraction, type_: Quantity, span: Span) -> Diagnostic:
    """T106."""
    if type_.above is not None and value <= type_.above:
        needs = f"more than {show(Fraction(type_.above), type_.dimension)}"
    elif type_.minimum is not None and value < type_.minimum:
        needs = f"at least {show(Fraction(type_.minimum), type_.dimension)}"
    else:
        assert type_.maximum is not None
        needs = f"at most {show(Fraction(type_.maximum), type_.dimension)}"
    return error(
        "T106", f"`{field}` needs {needs}", span, f"this is {show(value, type_.dimension)}"
    )


def too_large(span: Span) -> Diagnostic:
    """T107."""
    return error("T107", "the value is beyond anything a job can have", span, "more than 10^60")


def division_by_zero(span: Span) -> Diagnostic:
    """T108."""
    return error("T108", "division by zero", span, "this is 0")


def unknown_choice(field: str, ref: syntax.Ref, values: Sequence[str]) -> Diagnostic:
    """T109."""
    text = ".".join(name.text for name in ref.path)
    help, fixes = meant(text, values, ref.span)
    if fixes:
        help.append("known: " + ", ".join(f"`{value}`" for value in values))
    return error(
        "T109",
        f"`{field}` knows no `{text}`",
        ref.span,
        "not one of its values",
        help=help,
        fixes=fixes,
    )


def unknown_option(case: str, name: syntax.Name, known: Sequence[str]) -> Diagnostic:
    """T110."""
    help, fixes = meant(name.text, known, name.span)
    if not known:
        help = [f"`{case}` takes no options"]
    return error(
        "T110",
        f"`{case}` has no option `{name.text}`",
        name.span,
        "unknown option",
        help=help,
        fixes=fixes,
    )


def option_missing(case: str, names: Sequence[str], span: Span) -> Diagnostic:
    """T111."""
    listed = ", ".join(f"`{name}`" for name in names)
    return error("T111", f"`{case}` lacks {listed}", span, help=[f"`{case}({names[0]} = …)`"])


def wrong_arguments(function: str, takes: str, span: Span) -> Diagnostic:
    """T112."""
    return error("T112", f"`{function}` takes {takes}", span)


def auto_not_taken(field: str, span: Span) -> Diagnostic:
    """T113."""
    return error(
        "T113",
        f"`{field}` cannot be `auto`",
        span,
        "a value is needed here",
        help=[
            "`auto` may stand for degrees, order, shard, schedule, stages, cp_method, micro-batch, "
            "ZeRO stage, recompute"
        ],
    )


def open_fields(places: Sequence[tuple[str, Span]]) -> Diagnostic:
    """T114, a note: the file is a search problem."""
    (first, span), *rest = places
    names = ", ".join(f"`{name}`" for name, _ in places)
    return note(
        "T114",
        f"open: {names}",
        span,
        f"`{first}` is left to the planner",
        also=[(place, f"`{name}` too") for name, place in rest],
        notes=["rules that read an open field are not asked"],
        help=["`parlay plan` chooses the values"],
    )


def auto_without_solution(field: str, value: int, span: Span, allowed: str) -> Diagnostic:
    """T115."""
    return error(
        "T115",
        f"`{field} = auto` comes to {value}, which its restriction leaves out",
        span,
        f"{allowed}",
    )


def needs_degrees(command: str, places: Sequence[tuple[str, Span]]) -> Diagnostic:
    """T116: what is open stops `compile`, `run` and `ledger`."""
    (first, span), *rest = places
    names = ", ".join(f"`{name}`" for name, _ in places)
    return error(
        "T116",
        f"`parlay {command}` needs a value for {names}",
        span,
        f"`{first}` is left to the planner",
        also=[(place, f"`{name}` too") for name, place in rest],
        help=["`parlay plan FILE --write` chooses the values and puts them here"],
    )
