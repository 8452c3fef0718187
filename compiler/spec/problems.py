"""The words of what can be wrong with names, types and units (the `T` codes).

Each function takes the facts and returns one diagnostic; the pages that `explain` prints stand
in `codes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from parlay.compiler.spec.schema import (
    Choice,
    FieldSchema,
    FieldType,
    ListOf,
    Nested,
    Quantity,
    Switch,
    Text,
    Variant,
)
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, error, note
from parlay.dsl.nearest import nearest
from parlay.dsl.source import Span
from parlay.dsl.units import Dimension, literal, show, units_of

# ── Names ─────────────────────────────────────────────────────────────────────


def _meant(word: str, known: Iterable[str], span: Span) -> tuple[list[str], list[Fix]]:
    """Help and fixes that name the nearest of the known names, or all where they are few."""
    names = list(known)
    close = nearest(word, names)
    if close:
        listed = ", ".join(f"`{name}`" for name in close)
        fixes = [Fix(f"write `{name}`", (Edit(span, name),)) for name in close]
        return [f"nearest: {listed}"], fixes
    if 0 < len(names) <= 14:
        return ["known: " + ", ".join(f"`{name}`" for name in names)], []
    return [], []


def unknown_block(keyword: syntax.Name, known: Sequence[str]) -> Diagnostic:
    """T001."""
    help, fixes = _meant(keyword.text, known, keyword.span)
    return error(
        "T001",
        f"no block is called `{keyword.text}`",
        keyword.span,
        "unknown block",
        help=help,
        fixes=fixes,
    )


def unknown_field(
    path: str, item: syntax.Field | syntax.Block, fields: Sequence[FieldSchema]
) -> Diagnostic:
    """T002."""
    name = item.keyword if isinstance(item, syntax.Block) else item.name
    block = path.rpartition(".")[2] if not path.startswith("target.") else "target"
    help, fixes = _meant(name.text, [f.name for f in fields], name.span)
    return error(
        "T002",
        f"`{block}` has no field `{name.text}`",
        name.span,
        "unknown field",
        help=help,
        fixes=fixes,
    )


def unknown_preset(kind: str, name: syntax.String, known: Sequence[str]) -> Diagnostic:
    """T003."""
    close = nearest(name.value, known)
    fixes = [Fix(f'write "{other}"', (Edit(name.span, f'"{other}"'),)) for other in close]
    help = ["nearest: " + ", ".join(f'"{other}"' for other in close)] if close else []
    if known:
        help.append(f"`parlay catalog {kind}` lists all {len(known)}")
    return error(
        "T003",
        f'the catalog has no {kind} "{name.value}"',
        name.span,
        "unknown preset",
        help=help,
        fixes=fixes,
    )


def unreadable_preset(kind: str, name: syntax.String, why: str) -> Diagnostic:
    """T015, T016: a preset's file that gives no model, or no calibration."""
    measured = kind == "calibration"
    return error(
        "T016" if measured else "T015",
        f'"{name.value}" gives no {kind}',
        name.span,
        "read from this file",
        notes=[why],
        help=["`parlay calibrate -o FILE` measures this machine and writes one"]
        if measured
        else (),
    )


def no_preset_taken(path: str, span: Span) -> Diagnostic:
    """T004."""
    return error("T004", f"`{path}` takes no preset", span, "no presets of this kind exist")


def given_twice(what: str, name: syntax.Name, first: Span) -> Diagnostic:
    """T005."""
    return error(
        "T005",
        f"{what} `{name.text}` is given twice",
        name.span,
        "given again here",
        also=[(first, "given first here")],
        help=["one of the two needs to go; neither wins in silence"],
    )


def label_not_taken(kind: str, span: Span) -> Diagnostic:
    """T006."""
    return error("T006", f"a `{kind}` block takes no name", span, "name not taken here")


def phase_twice(name: str, span: Span, first: Span) -> Diagnostic:
    """T005 for phases."""
    return error(
        "T005",
        f'phase "{name}" is given twice',
        span,
        "given again here",
        also=[(first, "given first here")],
        help=["phases are told apart by their names"],
    )


def target_needs_name(span: Span) -> Diagnostic:
    """T007; a phase without a name is told by the parser."""
    return error("T007", "a target needs a name", span, help=['`target "megatron" { … }`'])


def field_not_block(path: str, item: syntax.Block, schema: FieldSchema) -> Diagnostic:
    """T008."""
    name = path.rpartition(".")[2]
    return error(
        "T008",
        f"`{name}` is a field, not a block",
        item.keyword.span,
        "a value is needed here",
        help=[f"`{name} = …` takes {describe(schema.types)}"],
    )


def block_not_field(path: str, item: syntax.Field) -> Diagnostic:
    """T008 the other way round."""
    name = item.name.text
    return error(
        "T008",
        f"`{name}` is a block, not a field",
        item.value.span,
        "a block is needed here",
        help=[f"`{name} {{ … }}`"],
    )


def block_not_taken(path: str, keyword: syntax.Name) -> Diagnostic:
    """T008 inside free options."""
    return error(
        "T008",
        f"`{path.rpartition('.')[2]}` holds no blocks",
        keyword.span,
        "a field is needed here",
    )


def missing_fields(block: str, names: Sequence[str], span: Span, docs: Sequence[str]) -> Diagnostic:
    """T009."""
    listed = ", ".join(f"`{name}`" for name in names)
    return error(
        "T009",
        f"`{block}` lacks {listed}",
        span,
        f"{block} stands here",
        notes=[f"{name}: {doc}" for name, doc in zip(names, docs, strict=True)],
    )


def missing_block(path: str, span: Span, why: str) -> Diagnostic:
    """T010."""
    return error("T010", f"the file lacks `{path}`", span, notes=[why])


def unknown_name(ref: syntax.Ref, known: Iterable[str]) -> Diagnostic:
    """T011."""
    text = ".".join(name.text for name in ref.path)
    help, fixes = _meant(text, known, ref.span)
    return error(
        "T011", f"nothing is called `{text}`", ref.span, "unknown name", help=help, fixes=fixes
    )


def no_value(ref: syntax.Ref, why: str) -> Diagnostic:
    """T012."""
    text = ".".join(name.text for name in ref.path)
    return error("T012", f"`{text}` has no value", ref.span, why)


def cycle(ring: Sequence[tuple[str, Span]]) -> Diagnostic:
    """T013: the ring of references, each with the place of its definition."""
    names = [name for name, _ in ring]
    shown = " -> ".join([*names, names[0]])
    (first, place), *rest = ring
    return error(
        "T013",
        f"`{first}` depends on itself",
        place,
        f"`{first}` is defined by this",
        also=[(span, f"`{name}` is defined by this") for name, span in rest[:6]],
        notes=[shown if len(names) <= 12 else f"a ring of {len(names)} definitions"],
    )


def chain_too_long(span: Span, limit: int) -> Diagnostic:
    """T014."""
    return error("T014", f"definitions lean on each other more than {limit} deep", span)


# ── Types ─────────────────────────────────────────────────────────────────────


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
            return f"{_DIMENSIONS[dimension]} ({', '.join(units_of(dimension))})"
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


_DIMENSIONS = {
    Dimension.COUNT: "a number",
    Dimension.DATA: "an amount of data",
    Dimension.RATE: "a rate of data",
    Dimension.COMPUTE: "a compute rate",
    Dimension.TIME: "a time",
    Dimension.SHARE: "a share",
    Dimension.MONEY: "a price",
}


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
        f"{what} needs {_DIMENSIONS[wanted]}, not {_DIMENSIONS[found]}",
        span,
        f"dimension {found.value}, where {wanted.value} is needed",
        help=[f"units of {wanted.value}: {units}"],
    )


def mixed_dimensions(operator: str, left: Dimension, right: Dimension, span: Span) -> Diagnostic:
    """T103."""
    return error(
        "T103",
        f"`{operator}` does not join {_DIMENSIONS[left]} and {_DIMENSIONS[right]}",
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
    help, fixes = _meant(text, values, ref.span)
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
    help, fixes = _meant(name.text, known, name.span)
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
        help=["`auto` may stand for degrees, schedule, stages, micro-batch, ZeRO stage, recompute"],
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
