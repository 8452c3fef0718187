"""The fields that a file gives, flat: path -> expression and origin, before anything is evaluated.

`collect` walks the tree against the schema: unknown and doubled names are told here, presets are
opened, and files that import each other, and phases over their file, are laid one over the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from parlay.compiler import catalog
from parlay.compiler.spec import problems
from parlay.compiler.spec.blocks import Link, Spec, Target
from parlay.compiler.spec.origins import Kind, Origin
from parlay.compiler.spec.schema import Free, Nested, field_of, fields_of
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Source, Span

MAIN: Final = "main"
"""The phase that is the file without its phases."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A field's expression with its origin; `name` is the place of the field's name."""

    value: syntax.Expr
    origin: Origin
    name: Span


@dataclass(slots=True)
class Table:
    """All that a file gives, after its imports."""

    fields: dict[str, Entry] = field(default_factory=dict)
    blocks: dict[str, Span] = field(default_factory=dict)
    lets: dict[str, syntax.Let] = field(default_factory=dict)
    targets: dict[str, syntax.Block] = field(default_factory=dict)
    asserts: list[syntax.Assert] = field(default_factory=list)
    allows: list[syntax.Allow] = field(default_factory=list)
    phases: list[syntax.Block] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # block -> its NAME
    strangers: dict[str, list[str]] = field(default_factory=dict)  # block -> unknown fields in it
    lost: set[str] = field(default_factory=set)  # blocks whose preset is unknown
    unread: set[str] = field(default_factory=set)  # fields and blocks that the parser gave up on

    def gave_up(self, path: str) -> bool:
        """Whether a field, or a block around it, is there but could not be read."""
        if not self.unread:
            return False
        parts = path.split(".")
        return any(".".join(parts[: n + 1]) in self.unread for n in range(len(parts)))

    def over(self, below: Table) -> Table:
        """This table laid over another: fields override, a new preset replaces the old one's."""
        dropped = {
            path.removesuffix(".from")
            for path, entry in self.fields.items()
            if path.endswith(".from") or path == "from"
        }
        kept = {
            path: entry
            for path, entry in below.fields.items()
            if not any(path == name or path.startswith(f"{name}.") for name in dropped)
        }
        return Table(
            fields={**kept, **self.fields},
            blocks={**below.blocks, **self.blocks},
            lets={**below.lets, **self.lets},
            targets={**below.targets, **self.targets},
            asserts=[*below.asserts, *self.asserts],
            allows=[*below.allows, *self.allows],
            phases=[*below.phases, *self.phases],
            names={**below.names, **self.names},
            strangers={**below.strangers, **self.strangers},
            lost=below.lost | self.lost,
            unread=below.unread | self.unread,
        )


Presets = Callable[[str, syntax.String], "catalog.Preset | str | None"]
"""Kind and name to a preset; None where there is none, a sentence where it cannot be read."""


def from_catalog(kind: str, name: syntax.String) -> catalog.Preset | None:
    """The presets that come with Parlay."""
    return catalog.load(kind, name.value)


class Collector:
    """Walks statements into a `Table`, gathering what is wrong on the way."""

    def __init__(self, presets: Presets = from_catalog) -> None:
        self.table = Table()
        self._presets = presets
        self.diagnostics: list[Diagnostic] = []
        self._names: dict[str, Span] = {}  # field -> the place it was first given

    def file(self, file: syntax.File) -> None:
        """All statements of one file, its imports left to the caller."""
        self.table.unread.update(name.text for name in file.lost)
        self.statements(file.statements)

    def statements(self, statements: Iterable[syntax.Statement]) -> None:
        """Statements in order."""
        for statement in statements:
            match statement:
                case syntax.Let():
                    self._let(statement)
                case syntax.Assert():
                    self.table.asserts.append(statement)
                case syntax.Allow():
                    self.table.allows.append(statement)
                case syntax.Block(keyword=syntax.Name(text="phase")):
                    self._phase(statement)
                case syntax.Block(keyword=syntax.Name(text="target")):
                    self._target(statement)
                case syntax.Block():
                    self._top(statement)
                case syntax.Import():
                    pass

    def _let(self, let: syntax.Let) -> None:
        first = self.table.lets.get(let.name.text)
        if first is not None:
            self.diagnostics.append(problems.given_twice("let", let.name, first.name.span))
            return
        self.table.lets[let.name.text] = let

    def _phase(self, phase: syntax.Block) -> None:
        label = phase.label
        if not isinstance(label, syntax.String):
            return  # the parser has told it
        if label.value == MAIN:
            self.diagnostics.append(problems.phase_main(label.value, label.span))
            return
        for other in self.table.phases:
            if isinstance(other.label, syntax.String) and other.label.value == label.value:
                self.diagnostics.append(
                    problems.phase_twice(label.value, label.span, other.label.span)
                )
                return
        self.table.phases.append(phase)

    def _target(self, block: syntax.Block) -> None:
        if not isinstance(block.label, syntax.String):
            self.diagnostics.append(problems.target_needs_name(block.keyword.span))
            return
        name = block.label.value
        if name in self.table.targets:
            label = self.table.targets[name].label
            first = label.span if label is not None else block.label.span
            self.diagnostics.append(problems.target_twice(name, block.label.span, first))
            return
        self.table.targets[name] = block
        self._body(f"target.{name}", Target, block, preset=None)

    def _top(self, block: syntax.Block) -> None:
        schema = field_of(Spec, block.kind)
        if schema is None:
            known = [f.name for f in fields_of(Spec)] + ["phase", "target"]
            self.diagnostics.append(problems.unknown_block(block.keyword, known))
            return
        nested = schema.types[0]
        assert isinstance(nested, Nested)
        if block.label is not None and isinstance(block.label, syntax.Name):
            if block.kind != "model":
                self.diagnostics.append(problems.label_not_taken(block.kind, block.label.span))
            else:
                self.table.names[block.kind] = block.label.text
        elif isinstance(block.label, syntax.String):
            self.diagnostics.append(problems.label_not_taken(block.kind, block.label.span))
        self._block(block.kind, nested, block)

    def _block(self, path: str, nested: Nested, block: syntax.Block) -> None:
        first = self.table.blocks.get(path)
        if first is not None:
            self.diagnostics.append(problems.given_twice("block", block.keyword, first))
            return
        self.table.blocks[path] = block.keyword.span
        self._body(path, nested.block, block, nested.preset)

    def _body(self, path: str, kind: type[Any], block: syntax.Block, preset: str | None) -> None:
        if block.preset is not None:
            self._preset(path, kind, block.preset, preset)
        self.table.unread.update(f"{path}.{name.text}" for name in block.lost)
        for item in block.body or ():
            written = item.keyword.text if isinstance(item, syntax.Block) else item.name.text
            schema = field_of(kind, written)
            if schema is None:
                self.diagnostics.append(problems.unknown_field(path, item, fields_of(kind)))
                self.table.strangers.setdefault(path, []).append(written)
                continue
            below = f"{path}.{schema.name}"
            type_ = schema.types[0]
            match item:
                case syntax.Block() if isinstance(type_, Nested):
                    if item.label is not None:
                        self.diagnostics.append(
                            problems.label_not_taken(item.kind, item.label.span)
                        )
                    self._block(below, type_, item)
                case syntax.Block() if isinstance(type_, Free):
                    self._free(below, item)
                case syntax.Block():
                    self.diagnostics.append(problems.field_not_block(below, item, schema))
                case syntax.Field() if isinstance(type_, Nested | Free):
                    self.diagnostics.append(problems.block_not_field(below, item))
                case syntax.Field():
                    self._field(below, item)

    def _field(self, path: str, item: syntax.Field) -> None:
        if path in self._names:
            self.diagnostics.append(problems.given_twice("field", item.name, self._names[path]))
            return
        self._names[path] = item.name.span
        self.table.fields[path] = Entry(
            item.value, Origin(Kind.FILE, item.value.span), item.name.span
        )

    def _free(self, path: str, block: syntax.Block) -> None:
        self.table.blocks[path] = block.keyword.span
        for item in block.body or ():
            if isinstance(item, syntax.Block):
                self.diagnostics.append(problems.block_not_taken(path, item.keyword))
                continue
            self._field(f"{path}.{item.name.text}", item)

    # ── presets ───────────────────────────────────────────────────────────────

    def _preset(
        self, path: str, kind: type[Any], name: syntax.String, catalog_kind: str | None
    ) -> None:
        if catalog_kind is None:
            self.diagnostics.append(problems.no_preset_taken(path, name.span))
            return
        preset = self._presets(catalog_kind, name)
        if isinstance(preset, str):
            self.table.lost.add(path)
            self.diagnostics.append(problems.unreadable_preset(catalog_kind, name, preset))
            return
        if preset is None:
            self.table.lost.add(path)
            self.diagnostics.append(
                problems.unknown_preset(catalog_kind, name, catalog.names(catalog_kind))
            )
            return
        origin = Origin(Kind.PRESET, name.span, name.value)
        # What an outer preset gave here goes as a whole: the two are not mixed.
        for inner in [below for below in self.table.fields if below.startswith(f"{path}.")]:
            del self.table.fields[inner]
        # Marks that a preset stands here, so that one laid over another replaces its values.
        self.table.fields[f"{path}.from"] = Entry(name, origin, name.span)
        self._values(path, kind, preset.values[catalog_kind], origin)

    def _values(
        self, path: str, kind: type[Any], values: Mapping[str, Any], origin: Origin
    ) -> None:
        for key, value in values.items():
            if key == "from":
                below = catalog.load(path.rpartition(".")[2], value)
                assert below is not None, f"the catalog names no {value}"
                self._values(
                    path, kind, below.values[below.kind], Origin(origin.kind, origin.span, value)
                )
            elif isinstance(value, Mapping):
                schema = field_of(kind, key)
                assert schema is not None and isinstance(schema.types[0], Nested)
                self._values(f"{path}.{key}", schema.types[0].block, value, origin)
            elif kind is Link and key == "domain" and value == self._gpus(path):
                continue  # all of a node: follows `gpus` where a file changes that
            else:
                self.table.fields[f"{path}.{key}"] = Entry(
                    expression(value, origin.span), origin, origin.span
                )

    def _gpus(self, link: str) -> int | None:
        entry = self.table.fields.get(f"{link.rpartition('.')[0]}.gpus")
        return int(entry.value.value) if entry and isinstance(entry.value, syntax.Number) else None


def expression(value: Any, span: Span) -> syntax.Expr:
    """A catalog value as an expression whose every part stands at `span`."""
    match value:
        case bool():
            return syntax.Switch(value, span)
        case int() | float():
            return syntax.Number(Fraction(str(value)), "", str(value), span)
        case list():
            return syntax.ListExpr(tuple(expression(item, span) for item in value), span)
        case _:
            return _placed(_parsed(str(value)), span)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> syntax.Expr:
    from parlay.dsl.parse import parse

    tree, diagnostics = parse(Source("catalog", f"b {{ f = {text} }}"))
    assert not diagnostics, f"the catalog's {text!r} is no expression"
    block = tree.statements[0]
    assert isinstance(block, syntax.Block) and block.body
    item = block.body[0]
    assert isinstance(item, syntax.Field)
    return item.value


def _placed(expr: syntax.Expr, span: Span) -> syntax.Expr:
    """The same expression with every span replaced by `span`."""
    from dataclasses import replace

    match expr:
        case syntax.Call():
            arguments = tuple(
                syntax.Argument(
                    syntax.Name(a.name.text, span) if a.name else None, _placed(a.value, span), span
                )
                for a in expr.arguments
            )
            return syntax.Call(syntax.Name(expr.name.text, span), arguments, span)
        case syntax.ListExpr():
            return syntax.ListExpr(tuple(_placed(i, span) for i in expr.items), span)
        case syntax.Ref():
            return syntax.Ref(tuple(syntax.Name(n.text, span) for n in expr.path), span)
        case _:
            return replace(expr, span=span)
