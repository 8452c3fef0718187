"""What an editor shows over a place: value, origin, formula, and the doc line of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parlay.compiler import catalog
from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.spots import Spot, What, full, spot
from parlay.compiler.spec import problems
from parlay.compiler.spec.asserting import VALUES
from parlay.compiler.spec.blocks import Spec, Target
from parlay.compiler.spec.origins import Kind, Origin
from parlay.compiler.spec.resolve import Phase, schemas
from parlay.compiler.spec.schema import (
    REQUIRED,
    Case,
    Choice,
    Derived,
    FieldSchema,
    FieldType,
    ListOf,
    Nested,
    Switch,
    Variant,
    field_of,
    fields_of,
)
from parlay.compiler.spec.shown import shown
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.source import Span
from parlay.dsl.units import Quantity, show

WORLD = "cluster.gpus"


def hover(analysis: Analysis, offset: int) -> tuple[str, Span] | None:
    """Markdown and the place it belongs to; None where there is nothing to say."""
    found = spot(analysis.tree, offset)
    if found is None:
        return None
    lines = _lines(analysis, found)
    return ("\n\n".join(line for line in lines if line), found.span) if lines else None


def code(text: str) -> str:
    """`text` as Markdown code that nothing in it can end, on one line."""
    plain = harmless(text)
    ticks = "`"
    while ticks in plain:
        ticks += "`"
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{pad}{plain}{pad}{ticks}"


def _lines(analysis: Analysis, found: Spot) -> list[str]:
    match found.what:
        case What.BLOCK:
            return _block(found.path)
        case What.FIELD | What.VALUE | What.OPTION:
            return field_lines(analysis, found.path, found.phase)
        case What.CASE:
            return _case(found.path, found.text) or field_lines(analysis, found.path, found.phase)
        case What.LET:
            return _let(analysis, found.text, found.phase)
        case What.REF:
            return _reference(analysis, found)
        case What.PRESET:
            return preset_lines(found.path, found.text) or _file_lines(analysis, found)
        case What.CODE:
            return _page(found.text)
    return []


# ── Blocks and presets ────────────────────────────────────────────────────────


def block_type(path: str) -> Nested | None:
    """The type of a block by its path; None where there is no such block."""
    if path.startswith("target."):
        return Nested(Target) if path.count(".") == 1 else None
    nested: Nested | None = Nested(Spec)
    for name in path.split("."):
        schema = field_of(nested.block, name) if nested else None
        type_ = schema.types[0] if schema else None
        nested = type_ if isinstance(type_, Nested) else None
    return nested


def _block(path: str) -> list[str]:
    if path == "phase":
        return ["**phase**", "The same blocks, changed; it starts from the last one's checkpoint."]
    nested = block_type(path)
    if nested is None:
        return []
    names = ", ".join(code(one.name) for one in fields_of(nested.block))
    doc = (nested.block.__doc__ or "").partition("\n")[0]
    return [f"**{path.partition('.')[0] if path.startswith('target.') else path}**", doc, names]


def preset_lines(path: str, name: str) -> list[str]:
    """A preset: its source, its note and its fields."""
    nested = block_type(path)
    preset = catalog.load(nested.preset, name) if nested and nested.preset else None
    if preset is None or nested is None:
        return []
    fields = [
        f"{key} = {_toml(value)}"
        for key, value in preset.values[preset.kind].items()
        if not isinstance(value, Mapping)
    ]
    return [
        f"**{preset.kind}** {code(name)}",
        "```\n" + "\n".join(fields) + "\n```" if fields else "",
        preset.note or "",
        f"Source: {preset.source}",
    ]


def _file_lines(analysis: Analysis, found: Spot) -> list[str]:
    """A preset that is a file of its own: the values that the block has from it."""
    phase = analysis.phase(found.phase)
    origins = phase.origins.fields.items() if phase else ()
    fields = [
        f"{path.removeprefix(found.path)[1:]} = {origin.shown}"
        for path, origin in origins
        if path.startswith(f"{found.path}.")
        and origin.kind is Kind.PRESET
        and origin.words == found.text
    ]
    block = "```\n" + "\n".join(map(harmless, fields)) + "\n```"
    return [f"**{found.path}** from the file {code(found.text)}", block] if fields else []


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _page(wanted: str) -> list[str]:
    from parlay.compiler.commands.explain import page_of

    page = page_of(wanted)
    return ["```text\n" + page.replace("```", "'''") + "```"] if page else []


# ── Fields ────────────────────────────────────────────────────────────────────


def field_lines(analysis: Analysis, path: str, phase_name: str | None) -> list[str]:
    """A field or an option: its value, where that comes from, and what the schema says of it."""
    phase = analysis.phase(phase_name)
    schema = schema_at(path, phase)
    origin = phase.origins.get(path) if phase else None
    if schema is None and path != WORLD:
        return []
    lines = [f"**{path}**"]
    if phase is not None and origin is not None:
        lines = [f"**{path}** = {code(origin.shown)}", whence(path, phase, origin)]
    if schema is not None:
        lines += [schema.doc, takes(schema)]
    else:
        lines.append("GPUs of all nodes: what the degrees multiply to.")
    return lines


def schema_at(path: str, phase: Phase | None) -> FieldSchema | None:
    """The schema of a field, or of the option of a variant."""
    known = schemas().get(path)
    if known is not None or path.startswith("target."):
        return known or (
            field_of(Target, path.rpartition(".")[2]) if path.count(".") == 2 else None
        )
    above, _, name = path.rpartition(".")
    field = schemas().get(above)
    cases = (
        [case for t in field.types if isinstance(t, Variant) for case in t.cases] if field else []
    )
    chosen = phase.origins.get(above) if phase else None
    if chosen is not None:
        # The form that is written goes first: others may have an option of the same name.
        cases.sort(key=lambda case: not chosen.shown.startswith(case.name))
    options = (option for case in cases for option in case.options if option.name == name)
    return next(options, None)


def whence(path: str, phase: Phase, origin: Origin) -> str:
    """Where a value comes from, in a sentence; with the values that a derivation reads."""
    if path in phase.open:
        return "Open: `parlay plan` chooses it."
    match origin.kind:
        case Kind.FILE:
            return "Written in the file."
        case Kind.PRESET:
            return f"From the preset {code(origin.words)}."
        case Kind.DEFAULT:
            return "The default."
    schema = schemas().get(path)
    paths = schema.default.paths if schema and isinstance(schema.default, Derived) else ()
    read = [(name, phase.origins.get(name)) for name in paths]
    values = ", ".join(f"{name} = {at.shown}" for name, at in read if at)
    return f"Derived: {code(origin.words)}" + (f", with {code(values)}." if values else ".")


def takes(schema: FieldSchema) -> str:
    """What a field takes, its default and its units."""
    said = f"Takes {problems.describe(schema.types)}" + (", or `auto`" if schema.open else "") + "."
    match schema.default:
        case Derived() as derived:
            said += f" Default: {code(derived.words)}."
        case None:
            said += " May be absent."
        case default if default is not REQUIRED:
            said += f" Default: {code(shown(default, schema.types))}."
    return said


# ── Values ────────────────────────────────────────────────────────────────────


def case_of(path: str, name: str) -> Case | None:
    """The form called `name` of the variant at `path`."""
    schema = schemas().get(path)
    found = (t.case(name) for t in (schema.types if schema else ()) if isinstance(t, Variant))
    return next((case for case in found if case), None)


def _case(path: str, name: str) -> list[str]:
    case = case_of(path, name)
    if case is None:
        return []
    options = [f"- {code(one.name)}: {one.doc} {takes(one)}" for one in case.options]
    flags = [f"May hold {', '.join(map(code, case.flags))}."] if case.flags else []
    return [f"**{path}** = {code(name)}", case.doc, "\n".join(options), *flags]


def choices_of(types: Iterable[FieldType]) -> dict[str, str]:
    """The names that stand for a value of one of `types`, each with what is known of it."""
    names: dict[str, str] = {}
    for type_ in types:
        match type_:
            case Choice():
                names |= dict.fromkeys(type_.values, "")
            case Switch():
                names |= {"on": "", "off": ""}
            case Variant():
                names |= {case.name: case.doc for case in type_.cases}
            case ListOf():
                names |= choices_of((type_.item,))
    return names


def _let(analysis: Analysis, name: str, phase_name: str | None) -> list[str]:
    phase = analysis.phase(phase_name)
    evaluator = phase.evaluator if phase else None
    let = evaluator.table.lets.get(name) if evaluator else None
    if evaluator is None or let is None:
        return []
    source = analysis.loaded.sources.get(let.span.file)
    text = source.text[let.value.span.start : let.value.span.end] if source else ""
    value = _shown(evaluator.let(let))
    lines = [f"**let** {code(name)}" + (f" = {code(value)}" if value else "")]
    return [*lines, f"Written {code(text)}."] if text and text != value else lines


def _shown(value: object) -> str:
    match value:
        case Quantity():
            return show(value.value, value.dimension)
        case bool():
            return "on" if value else "off"
        case str():
            return f'"{value}"'
    return ""


def _reference(analysis: Analysis, found: Spot) -> list[str]:
    """A name: an enumeration's in its field, else a `let`, a field's path or a ledger's figure."""
    if "." not in found.text:
        schema = schemas().get(found.path)
        case = _case(found.path, found.text)
        if case or (schema is not None and found.text in choices_of(schema.types)):
            return case or field_lines(analysis, found.path, found.phase)
        let = _let(analysis, found.text, found.phase)
        if let or found.text not in VALUES:
            return let or field_lines(analysis, found.path, found.phase)
    if found.text in VALUES and not found.path:
        return _figure(analysis, found.text)
    return field_lines(analysis, full(found.text), found.phase)


def _figure(analysis: Analysis, name: str) -> list[str]:
    phase = analysis.phase(None)
    value = analysis.figures(phase).get(name) if phase else None
    if value is None:
        return [f"**{name}**", "A figure of the ledger; it has a value once the file has no error."]
    known = value.quantity
    said = f" = {code(show(known.value, known.dimension))}" if known else ""
    return [f"**{name}**{said}", f"Formula: {code(value.formula)}." if value.formula else ""]
