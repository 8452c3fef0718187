"""Tree to spec: every phase of a file with its values, their origins and what is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from parlay.compiler.spec import arithmetic, asserting, problems
from parlay.compiler.spec.blocks import Spec, Target
from parlay.compiler.spec.entries import MAIN, Collector, Presets, Table, from_catalog
from parlay.compiler.spec.evaluate import Evaluator
from parlay.compiler.spec.origins import Kind, Origins
from parlay.compiler.spec.problems.elsewhere import elsewhere
from parlay.compiler.spec.schema import REQUIRED, FieldSchema, Nested, Open, fields_of
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.nearest import nearest
from parlay.dsl.source import Span


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a job: `main`, or a named one laid over it.

    Fields of `spec` that are in error, or in `open`, are None. `evaluator` answers for the names
    in `asserts`.
    """

    name: str
    spec: Spec
    origins: Origins
    open: Mapping[str, Open]
    targets: Mapping[str, Target] = field(default_factory=dict)
    asserts: tuple[syntax.Assert, ...] = ()
    allows: tuple[syntax.Allow, ...] = ()
    model_name: str = ""
    evaluator: Evaluator | None = field(default=None, compare=False, repr=False)


TRAINED: Final = ("parallel", "train")
"""A file with phases and one of these blocks outside of them is a phase itself."""

Imports = Callable[[syntax.Import], "tuple[syntax.File | None, tuple[Diagnostic, ...]]"]


def resolve(
    file: syntax.File, imports: Imports, presets: Presets = from_catalog
) -> tuple[tuple[Phase, ...], tuple[Diagnostic, ...]]:
    """The phases of a file in order, and everything wrong with names, types and units.

    `imports` reads and parses an imported file; it tells cycles and escapes itself. `presets`
    finds what stands behind `from "…"`. The file without its phases is the first one, `main`,
    unless it says neither how nor on what to train: then it is what they share.
    """
    diagnostics: list[Diagnostic] = []
    table = _collected(file, imports, presets, diagnostics)
    shared = table.phases and not any(name in table.blocks for name in TRAINED)
    phases = [] if shared else [_phase(MAIN, table, file.span, diagnostics)]
    for block in table.phases:
        assert isinstance(block.label, syntax.String)
        collector = Collector(presets)
        collector.statements(item for item in block.body or () if isinstance(item, syntax.Block))
        for item in block.body or ():
            if isinstance(item, syntax.Field):
                collector.diagnostics.append(problems.unknown_block(item.name, list(_BLOCKS())))
        diagnostics.extend(collector.diagnostics)
        over = collector.table.over(table)
        phases.append(_phase(block.label.value, over, file.span, diagnostics))
    return tuple(phases), tuple(dict.fromkeys(diagnostics))


def _collected(
    file: syntax.File, imports: Imports, presets: Presets, diagnostics: list[Diagnostic]
) -> Table:
    below = Table()
    for statement in file.statements:
        if isinstance(statement, syntax.Import):
            imported, told = imports(statement)
            diagnostics.extend(told)
            if imported is not None:
                below = _collected(imported, imports, presets, diagnostics).over(below)
    collector = Collector(presets)
    collector.file(file)
    diagnostics.extend(collector.diagnostics)
    return collector.table.over(below)


def _BLOCKS() -> tuple[str, ...]:
    return tuple(schema.name for schema in fields_of(Spec))


@cache
def schemas() -> dict[str, FieldSchema]:
    """Every field of the language by its path, without nested blocks themselves."""
    found: dict[str, FieldSchema] = {}

    def walk(kind: type[Any], prefix: str) -> None:
        for schema in fields_of(kind):
            path = f"{prefix}{schema.name}"
            if isinstance(schema.types[0], Nested):
                walk(schema.types[0].block, f"{path}.")
            else:
                found[path] = schema

    walk(Spec, "")
    return found


def _phase(name: str, table: Table, whole: Span, diagnostics: list[Diagnostic]) -> Phase:
    start = Span(whole.file, 0, 0)
    places = Origins({}, table.blocks, start)
    evaluator = Evaluator(table, schemas(), lambda path: places.block(path.rpartition(".")[0]))
    builder = _Builder(table, evaluator, places)
    spec = builder.build(Spec, "")
    for let in table.lets.values():
        evaluator.let(let)
    targets = {label: _target(label, table, evaluator) for label in table.targets}
    if evaluator.open:
        told = [(path, evaluator.origins[path].span) for path in sorted(evaluator.open)]
        evaluator.tell(problems.open_fields(told))
    asserting.examine(evaluator, table.asserts)
    diagnostics.extend(evaluator.diagnostics)
    allowed = {allow.code.text: (allow.span, allow.reason.value) for allow in table.allows}
    if spec.cluster is not None:
        evaluator.field("cluster.gpus")
    broken = frozenset(evaluator.broken)
    origins = Origins(evaluator.origins, table.blocks, start, allowed, broken)
    return Phase(
        name,
        spec,
        origins,
        evaluator.open,
        targets,
        tuple(table.asserts),
        tuple(table.allows),
        table.names.get("model", ""),
        evaluator,
    )


class _Builder:
    """Builds the blocks of a spec; tells which required fields and blocks are missing."""

    def __init__(self, table: Table, evaluator: Evaluator, places: Origins) -> None:
        self._table = table
        self._evaluator = evaluator
        self._places = places
        self._given = set(table.fields)
        self._present = set(table.blocks)
        for path in table.fields:
            while "." in path:
                path = path.rpartition(".")[0]
                self._present.add(path)

    def build(self, kind: type[Any], path: str) -> Any:
        values: dict[str, Any] = {}
        missing: list[FieldSchema] = []
        # A model given by `params` alone has no shape, and needs none for its states.
        shapeless = path == "model" and "model.params" in self._given
        for schema in fields_of(kind):
            below = f"{path}.{schema.name}" if path else schema.name
            type_ = schema.types[0]
            if isinstance(type_, Nested):
                values[schema.attribute] = self._nested(type_, below, schema)
                continue
            if schema.default is REQUIRED and below not in self._given:
                values[schema.attribute] = None
                if not shapeless and not self._told_already(path, schema.name):
                    missing.append(schema)
                continue
            values[schema.attribute] = self._evaluator.field(below)
        if missing:
            self._evaluator.tell(
                problems.missing_fields(
                    path,
                    [schema.name for schema in missing],
                    self._places.block(path),
                    [schema.doc for schema in missing],
                )
            )
        return kind(**values)

    def _told_already(self, path: str, name: str) -> bool:
        """Whether the lack of a field follows from an unknown preset or a misspelt field."""
        table = self._table
        around = [path[:m] for m in range(1, len(path) + 1) if path[m : m + 1] in (".", "")]
        if any(block in table.lost for block in around):
            return True
        if table.gave_up(f"{path}.{name}" if path else name):
            return True
        return any(
            name in nearest(word, [name]) or (elsewhere(word) or ("",))[0] == name
            for word in table.strangers.get(path, ())
        )

    def _nested(self, type_: Nested, path: str, schema: FieldSchema) -> Any:
        if path in self._present:
            return self.build(type_.block, path)
        if schema.default is REQUIRED:
            if not self._told_already(path.rpartition(".")[0], schema.name):
                self._evaluator.tell(
                    problems.missing_block(path, self._places.block(path), schema.doc)
                )
            return None
        if any(
            below.default is REQUIRED and not isinstance(below.types[0], Nested)
            for below in fields_of(type_.block)
        ):
            return None
        if any(below.default is REQUIRED for below in fields_of(type_.block)):
            return None
        return self.build(type_.block, path)


def _target(label: str, table: Table, evaluator: Evaluator) -> Target:
    """The `target` block called `label`: its version, and its options as written."""
    prefix = f"target.{label}."
    version = None
    options: dict[str, Any] = {}
    for path, entry in table.fields.items():
        if not path.startswith(prefix):
            continue
        name = path.removeprefix(prefix)
        if name == "version":
            version = evaluator.convert(path, entry.value, fields_of(Target)[0].types)
            evaluator.origins[path] = entry.origin
        elif name.startswith("options."):
            options[name.removeprefix("options.")] = _as_written(entry.value, evaluator)
            evaluator.origins[path] = entry.origin
    return Target(version=version, options=options)


def _as_written(expr: syntax.Expr, evaluator: Evaluator) -> Any:
    match expr:
        case syntax.String() | syntax.Switch():
            return expr.value
        case syntax.Ref(path=(name,)) if name.text not in evaluator.table.lets:
            return name.text
        case syntax.ListExpr():
            return tuple(_as_written(item, evaluator) for item in expr.items)
    read = arithmetic.number(evaluator, expr, None)
    if read is None:
        return None
    return int(read.value) if read.value.denominator == 1 else float(read.value)


__all__ = ["Kind", "Phase", "resolve", "schemas"]
