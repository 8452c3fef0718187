"""`parlay schema`: the JSON schema (2020-12) of the blocks, from the one table."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from parlay.compiler import catalog
from parlay.compiler.commands.printing import print_json
from parlay.compiler.spec.blocks import Spec, Target
from parlay.compiler.spec.schema import (
    REQUIRED,
    Case,
    Choice,
    Derived,
    FieldSchema,
    FieldType,
    Free,
    ListOf,
    Nested,
    Quantity,
    Switch,
    Text,
    Variant,
    fields_of,
)
from parlay.compiler.spec.shown import shown
from parlay.dsl.units import Dimension, units_of

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def run() -> int:
    """Prints the schema."""
    print_json(schema())
    return 0


@cache
def schema() -> dict[str, Any]:
    """The blocks as JSON writes them, which is how the catalog's fact files do.

    A block is an object of its fields; `from` names a preset; a switch is a boolean, a number a
    number, and a string any expression of the language: `"450GB/s"`, `"auto"`, `"8 * 128"`.
    What JSON schema has no word for stands in `x-dimension`, `x-units` and `x-cases`.
    """
    blocks: dict[str, Any] = {}
    top = {one.name: _field(one, blocks) for one in fields_of(Spec)}
    top["target"] = {
        "type": "object",
        "description": "Versions and settings of back ends, by name.",
        "additionalProperties": _reference(Target, None, blocks),
    }
    return {
        "$schema": DIALECT,
        "title": "Parlay",
        "description": "The blocks of a .par file.",
        "type": "object",
        "properties": top,
        "additionalProperties": False,
        "$defs": dict(sorted(blocks.items())),
    }


def _reference(kind: type[Any], preset: str | None, blocks: dict[str, Any]) -> dict[str, Any]:
    """A reference to a block's definition, which is made where it is not there yet."""
    name = kind.__name__.lower()
    if name not in blocks:
        blocks[name] = {}
        properties = {one.name: _field(one, blocks) for one in fields_of(kind)}
        if preset is not None:
            known = list(catalog.names(preset))
            properties["from"] = {
                "type": "string",
                "description": f"A {preset} of the catalog."
                if known
                else f"A file with a {preset}.",
                **({"examples": known} if known else {}),
            }
        blocks[name] = {
            "type": "object",
            "description": (kind.__doc__ or "").partition("\n")[0],
            "properties": properties,
            "additionalProperties": False,
        }
        needed = [one.name for one in fields_of(kind) if one.default is REQUIRED]
        if needed:
            # A preset, an import or `params` may give them: needed, but not of this object.
            blocks[name]["x-required"] = needed
    return {"$ref": f"#/$defs/{name}"}


def _field(field: FieldSchema, blocks: dict[str, Any]) -> dict[str, Any]:
    first = field.types[0]
    if isinstance(first, Nested):
        return {**_reference(first.block, first.preset, blocks), "description": field.doc}
    forms = [form for type_ in field.types for form in _forms(type_)]
    if field.open:
        forms.append({"type": "string", "pattern": r"^auto\b"})
    found: dict[str, Any] = {"description": field.doc}
    found |= forms[0] if len(forms) == 1 else {"anyOf": forms}
    dimension = next((t.dimension for t in field.types if isinstance(t, Quantity)), None)
    if dimension is not None:
        found["x-dimension"] = str(dimension)
        found["x-units"] = list(units_of(dimension))
    return found | _default(field)


def _default(field: FieldSchema) -> dict[str, Any]:
    """The default as JSON has it, in words where it follows from other fields."""
    match field.default:
        case None:
            return {}
        case Derived() as derived:
            return {"x-default": derived.words}
        case bool() | int() | float() | str() as value:
            plain = all(
                not isinstance(t, Quantity) or t.dimension in (Dimension.COUNT, Dimension.SHARE)
                for t in field.types
            )
            return {"default": value} if plain else {"default": shown(value, field.types)}
    return {} if field.default is REQUIRED else {"x-default": shown(field.default, field.types)}


def _forms(type_: FieldType) -> list[dict[str, Any]]:
    """What a value of one type looks like in JSON."""
    match type_:
        case Quantity():
            return [_number(type_), {"type": "string"}]
        case Switch():
            return [{"type": "boolean"}, {"enum": ["on", "off"]}]
        case Text():
            return [{"type": "string"}]
        case Choice():
            return [{"enum": list(type_.values)}]
        case Variant():
            names = "|".join(case.name for case in type_.cases)
            return [
                {
                    "type": "string",
                    "pattern": rf"^({names})\s*(\(.*\))?$",
                    "x-cases": {case.name: _case(case) for case in type_.cases},
                }
            ]
        case ListOf():
            item = _forms(type_.item)
            return [{"type": "array", "items": item[0] if len(item) == 1 else {"anyOf": item}}]
        case Free():
            return [{"type": "object"}]
    raise AssertionError(type_)


def _number(type_: Quantity) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "integer" if type_.integer else "number"}
    for word, bound in (
        ("minimum", type_.minimum),
        ("maximum", type_.maximum),
        ("exclusiveMinimum", type_.above),
    ):
        if bound is not None:
            found[word] = int(bound) if bound == int(bound) else float(bound)
    return found


def _case(case: Case) -> dict[str, Any]:
    """One form of a variant: its options, and the bare words it takes."""
    found: dict[str, Any] = {"description": case.doc} if case.doc else {}
    if case.options:
        found["options"] = {option.name: _field(option, {}) for option in case.options}
    if case.flags:
        found["flags"] = list(case.flags)
    return found
