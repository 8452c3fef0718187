"""What an editor offers at the cursor: all of it from the schema, the catalog and the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parlay.compiler import catalog
from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.context import Context, Wants, context
from parlay.compiler.server.hover import block_type, case_of, choices_of, takes
from parlay.compiler.server.spots import full
from parlay.compiler.spec.asserting import VALUES
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.convert import FUNCTIONS
from parlay.compiler.spec.evaluate import ALIASES
from parlay.compiler.spec.resolve import schemas
from parlay.compiler.spec.schema import (
    FieldSchema,
    FieldType,
    Free,
    ListOf,
    Nested,
    Quantity,
    Variant,
    fields_of,
)

MOST_FILES: Final = 200

STATEMENTS: Final = {
    "let": ("A name for a value.", "let ${1:name} = $0"),
    "import": ("The blocks and lets of another file.", 'import "$0"'),
    "assert": ("A claim over fields and the ledger's figures.", "assert $0"),
    "allow": ("One rule's error as a warning.", 'allow ${1:N201} "$0"'),
    "phase": ("The same blocks, changed.", 'phase "${1:name}" {\n  $0\n}'),
    "target": ("A back end's version and settings.", 'target "${1:torch}" {\n  $0\n}'),
}


class Kind:
    """The kinds of the protocol that are used here."""

    MODULE = 9
    FIELD = 5
    VARIABLE = 6
    CLASS = 7
    PROPERTY = 10
    VALUE = 12
    ENUM = 20
    KEYWORD = 14
    FILE = 17
    CONSTANT = 21
    FUNCTION = 3


@dataclass(frozen=True, slots=True)
class Item:
    """One offer: `insert` is a snippet where it holds `$0`."""

    label: str
    kind: int
    detail: str = ""
    doc: str = ""
    insert: str = ""


def complete(analysis: Analysis, offset: int) -> tuple[list[Item], int]:
    """The offers at an offset, and where the text begins that they take the place of."""
    at = context(analysis.text, offset)
    items = {item.label: item for item in reversed(list(_items(analysis, at)))}
    return list(reversed(items.values())), at.start


def _items(analysis: Analysis, at: Context) -> Iterator[Item]:
    match at.wants:
        case Wants.ITEM:
            yield from _block_items(at)
        case Wants.VALUE:
            yield from _values(analysis, at)
        case Wants.OPTION:
            yield from _options(analysis, at)
        case Wants.STRING:
            yield from _strings(analysis, at)
        case Wants.CODE:
            yield from _codes()


# ── Items ─────────────────────────────────────────────────────────────────────


def _block_items(at: Context) -> Iterator[Item]:
    if "." in at.prefix:
        return
    if not at.path:
        if at.phase is None:
            for word, (doc, insert) in STATEMENTS.items():
                yield Item(word, Kind.KEYWORD, doc=doc, insert=insert)
        fields: Iterable[FieldSchema] = fields_of(Spec)
    else:
        nested = block_type(at.path)
        if nested is None:
            return
        fields = fields_of(nested.block)
    for schema in fields:
        if schema.name not in at.given:
            yield _field(schema)


def _field(schema: FieldSchema) -> Item:
    first = schema.types[0]
    if isinstance(first, Nested | Free):
        insert = f"{schema.name} {{\n  $0\n}}"
        return Item(schema.name, Kind.CLASS, "block", schema.doc, insert)
    cases = first.cases if isinstance(first, Variant) else ()
    if len(cases) == 1 and cases[0].name == schema.name:  # the short form: `rope(theta = …)`
        insert = f"{schema.name}($0)"
    else:
        insert = f"{schema.name} = $0"
    return Item(schema.name, Kind.FIELD, "", f"{schema.doc}\n\n{takes(schema)}", insert)


# ── Values ────────────────────────────────────────────────────────────────────


def _values(analysis: Analysis, at: Context) -> Iterator[Item]:
    if "." in at.prefix:
        yield from _paths(at)
        return
    types = _types(at)
    for name, doc in choices_of(types).items():
        yield Item(name, Kind.ENUM, "", doc, _call(at, name))
    schema = schemas().get(f"{at.path}.{at.field}")
    if schema is not None and schema.open and not at.call:
        yield Item("auto", Kind.KEYWORD, "", "The compiler chooses.")
    yield from _names(analysis, at, types)


def _types(at: Context) -> tuple[FieldType, ...]:
    """The types of the field or option whose value is asked for; of items within a list."""
    schema = schemas().get(f"{at.path}.{at.field}")
    if schema is None:
        return ()
    if not at.call or at.call in FUNCTIONS:
        return schema.types
    case = case_of(f"{at.path}.{at.field}", at.call)
    options = case.options if case else ()
    return next((option.types for option in options if option.name == at.option), ())


def _call(at: Context, name: str) -> str:
    """A form with its required options, as a snippet; empty for a plain name."""
    case = case_of(f"{at.path}.{at.field}", name)
    if case is None or not (case.options or case.flags):
        return ""
    return f"{name}($0)"


def _names(analysis: Analysis, at: Context, types: tuple[FieldType, ...]) -> Iterator[Item]:
    """Lets, and the paths and functions of arithmetic where a number may stand."""
    phase = analysis.phase(at.phase) or analysis.phase(None)
    lets = phase.evaluator.table.lets if phase and phase.evaluator else {}
    for name in lets:
        yield Item(name, Kind.VARIABLE, "let")
    numeric = any(
        isinstance(t, Quantity) or (isinstance(t, ListOf) and isinstance(t.item, Quantity))
        for t in types
    )
    if types and not numeric:
        return
    for name in (*ALIASES, *(one.name for one in fields_of(Spec))):
        yield Item(name, Kind.MODULE, "block")
    for name in FUNCTIONS:
        yield Item(name, Kind.FUNCTION, "function", insert=f"{name}($0)")
    if not at.field:
        heads = dict.fromkeys(name.partition(".")[0] for name in VALUES)
        for name in heads:
            yield Item(name, Kind.CONSTANT, "figure of the ledger")


def _paths(at: Context) -> Iterator[Item]:
    """The next names of a path: `model.` --> layers, hidden, …"""
    head = at.prefix.rpartition(".")[0]
    below = full(head + ".").rstrip(".")
    figures = VALUES if not at.field else ()
    for path in (*schemas(), "cluster.gpus", *figures):
        if path.startswith(f"{below}."):
            name, more, _ = path.removeprefix(f"{below}.").partition(".")
            schema = schemas().get(path)
            kind = Kind.MODULE if more else Kind.PROPERTY
            label = f"{head}.{name}"
            yield Item(label, kind, "" if more or not schema else schema.doc)


def _options(analysis: Analysis, at: Context) -> Iterator[Item]:
    case = case_of(f"{at.path}.{at.field}", at.call)
    if case is None:
        yield from _values(analysis, at)
        return
    for option in case.options:
        if option.name not in at.given:
            doc = f"{option.doc}\n\n{takes(option)}"
            yield Item(option.name, Kind.PROPERTY, "", doc, f"{option.name} = $0")
    for flag in case.flags:
        if flag not in at.given:
            yield Item(flag, Kind.ENUM)


# ── Strings and codes ─────────────────────────────────────────────────────────


def _strings(analysis: Analysis, at: Context) -> Iterator[Item]:
    if at.word == "from":
        nested = block_type(at.path)
        kind = nested.preset if nested else None
        for name in catalog.names(kind) if kind else ():
            yield Item(name, Kind.VALUE, kind or "")
        if kind == "calibration":
            yield from _files(analysis.path.parent, analysis.path, "json")
    elif at.word == "import":
        yield from _files(analysis.path.parent, analysis.path)
    elif at.word == "target":
        from parlay.compiler.backends import TARGETS

        for name, target in TARGETS.items():
            yield Item(name, Kind.VALUE, "", target.says)


def _files(folder: Path, own: Path, kind: str = "par") -> Iterator[Item]:
    """The files of a kind beside the text and in the folders right below."""
    try:
        found = sorted([*folder.glob(f"*.{kind}"), *folder.glob(f"*/*.{kind}")])[:MOST_FILES]
    except OSError:
        return
    for path in found:
        if path != own:
            yield Item(path.relative_to(folder).as_posix(), Kind.FILE)


def _codes() -> Iterator[Item]:
    from parlay.compiler.checks import all_rules

    for rule in all_rules():
        if rule.ALLOWED:
            yield Item(rule.CODE, Kind.CONSTANT, rule.TITLE)
