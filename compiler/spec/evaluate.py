"""Fields to values: references, arithmetic with dimensions, and the types of the schema.

Evaluation is lazy and memoised, so fields may refer to each other in any order; a ring of
references is told once, with all its places. A value in error is None and is not told again by
what depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, Final

from parlay.compiler.spec import arithmetic, problems
from parlay.compiler.spec.convert import BAD, Converter, bare, exactly
from parlay.compiler.spec.entries import Entry, Table
from parlay.compiler.spec.origins import Kind, Origin
from parlay.compiler.spec.schema import (
    REQUIRED,
    Derived,
    FieldSchema,
    Open,
    Quantity,
    Switch,
    Text,
)
from parlay.compiler.spec.shown import shown
from parlay.dsl import syntax, units
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Span
from parlay.dsl.units import Dimension

DEEPEST: Final = 100  # definitions that lean on each other
ALIASES: Final = {"gpu": "cluster.node.gpu", "node": "cluster.node"}


class Evaluator(Converter):
    """The values of one phase's fields, by path, with their origins.

    `schemas` names every field that may exist. `values[path]` is None where the value is in
    error, absent or open; `open` holds what `auto` was left to the planner.
    """

    def __init__(self, table: Table, schemas: dict[str, FieldSchema], place: Any) -> None:
        self.table = table
        self.schemas = schemas
        self.values: dict[str, Any] = {}
        self.exact: dict[str, units.Quantity] = {}
        self.origins: dict[str, Origin] = {}
        self.open: dict[str, Open] = {}
        self.diagnostics: list[Diagnostic] = []
        self.broken: set[str] = set()
        self._place = place  # path -> span to point at where nothing is written
        self._lets: dict[str, Any] = {}
        self._stack: list[tuple[str, Span]] = []
        self._told_rings: set[frozenset[str]] = set()
        self._told_deep = False

    # ── fields ────────────────────────────────────────────────────────────────

    def field(self, path: str) -> Any:
        """The value of a field: written, derived or by default; None where there is none."""
        if path in self.values:
            return self.values[path]
        if path == "cluster.gpus":
            return self._world()
        entry = self.table.fields.get(path)
        schema = self.schemas[path]
        if entry is None and not isinstance(schema.default, Derived):
            # It leans on nothing, so that it needs no guard; most fields are such.
            value = self.values[path] = self._default(path, schema)
            return value
        place = entry.value.span if entry else self._place(path)
        with self._entered(path, place) as entered:
            value = self._entry(path, entry, schema) if entered else BAD
        if not entered:
            self.broken.add(path)
            return BAD
        self.values[path] = value
        return value

    def _entry(self, path: str, entry: Entry | None, schema: FieldSchema) -> Any:
        if entry is None:
            return self._default(path, schema)
        expr = bare(entry.value)
        if isinstance(expr, syntax.Auto):
            return self._auto(path, expr, entry, schema)
        value = self.convert(path, expr, schema.types)
        if value is BAD:
            self.broken.add(path)
        elif schema.normal is not None:
            value = schema.normal(value)
        origin, said = entry.origin, shown(value, schema.types)
        self.origins[path] = Origin(
            origin.kind, origin.span, origin.words, said, *self._literal(expr)
        )
        return value

    def _literal(self, expr: syntax.Expr) -> tuple[str, Span | None]:
        """The number that `expr` is or names, as it is written, and where; `""` and None else."""
        for _ in range(DEEPEST):
            expr = bare(expr)
            if not isinstance(expr, syntax.Ref) or not self._is_let(expr):
                break
            expr = self.table.lets[expr.path[0].text].value
        return (expr.text, expr.span) if isinstance(expr, syntax.Number) else ("", None)

    def _default(self, path: str, schema: FieldSchema) -> Any:
        default, place = schema.default, self._place(path)
        if self.table.gave_up(path):
            self.broken.add(path)
            return BAD
        if default is REQUIRED:
            return BAD
        if isinstance(default, Derived):
            value = self._derive(default)
            self.origins[path] = Origin(
                Kind.DERIVED, place, default.words, shown(value, schema.types)
            )
        else:
            value = default
            said, exact = _of_default(schema)
            self.origins[path] = Origin(Kind.DEFAULT, place, "", said)
            if exact is not None:
                self.exact[path] = exact
            return value
        self._keep_exact(path, value, schema.types)
        return value

    def _derive(self, default: Derived) -> Any:
        values = [self.field(path) for path in default.paths]
        return None if any(value is None for value in values) else default.function(*values)

    def _world(self) -> int | None:
        nodes, gpus = self.field("cluster.nodes"), self.field("cluster.node.gpus")
        world = None if nodes is None or gpus is None else nodes * gpus
        self.values["cluster.gpus"] = world
        if world is not None:
            self.exact["cluster.gpus"] = units.Quantity(Fraction(world), Dimension.COUNT)
            place = self.origins["cluster.nodes"].span
            words = f"cluster.nodes {nodes} · node.gpus {gpus}"
            self.origins["cluster.gpus"] = Origin(Kind.DERIVED, place, words, str(world))
        return world

    # ── auto ──────────────────────────────────────────────────────────────────

    def _auto(self, path: str, auto: syntax.Auto, entry: Entry, schema: FieldSchema) -> Any:
        if not schema.open:
            self.tell(problems.auto_not_taken(path.rpartition(".")[2], auto.span))
            self.broken.add(path)
            return BAD
        restricted = self._restriction(path, auto, schema)
        if path == "parallel.stages":
            self.origins[path] = Origin(
                Kind.DERIVED, entry.origin.span, "balanced by FLOPs", "auto"
            )
            return "auto"
        if isinstance(schema.default, Derived) and path == "parallel.dp":
            value = self._derive(schema.default)
            said = shown(value, schema.types)
            self.origins[path] = Origin(
                Kind.DERIVED,
                entry.origin.span,
                schema.default.words,
                said,
                restricted=restricted,
            )
            self._keep_exact(path, value, schema.types)
            if value is not None and not _fits(value, restricted):
                words = (
                    shown(restricted.choices, ())
                    if restricted.choices
                    else f"<= {restricted.limit}"
                )
                self.tell(problems.auto_without_solution("dp", value, auto.span, words))
                self.broken.add(path)
                return BAD
            if value is None and any(p in self.open for p in schema.default.paths):
                self.open[path] = restricted
            return value
        self.origins[path] = Origin(Kind.FILE, entry.origin.span, "", "auto", restricted=restricted)
        self.open[path] = restricted
        return BAD

    def _restriction(self, path: str, auto: syntax.Auto, schema: FieldSchema) -> Open:
        choices = None
        if auto.choices is not None:
            kinds = schema.types
            read = [self.convert(path, bare(item), kinds) for item in auto.choices]
            choices = tuple(value for value in read if value is not None)
        limit = None
        if auto.limit is not None:
            limit = self.convert(path, bare(auto.limit), schema.types)
        return Open(choices, limit)

    # ── references ────────────────────────────────────────────────────────────

    def refer(self, ref: syntax.Ref) -> units.Quantity | None:
        """The exact number that a name or path stands for, or None with the reason told."""
        if len(ref.path) == 1:
            value = self._let_value(ref)
            if value is None:
                if not self._is_let(ref) and ref.path[0].text not in self.table.unread:
                    self.tell(problems.unknown_name(ref, self.names()))
                return None
            if isinstance(value, units.Quantity):
                return value
            self.tell(problems.no_number(ref))
            return None
        path = ".".join(name.text for name in ref.path)
        head, _, rest = path.partition(".")
        path = f"{ALIASES[head]}.{rest}" if head in ALIASES else path
        if path not in self.schemas and path != "cluster.gpus" and path not in self.exact:
            parent = path.rpartition(".")[0]
            if parent in self.schemas:
                self.field(parent)  # an option of a variant
            if path not in self.exact:
                self.tell(problems.unknown_name(ref, self.names()))
                return None
        if path in self.schemas or path == "cluster.gpus":
            value = self.field(path)
            if value is None:
                if path not in self.broken and path not in self.open:
                    self.tell(problems.no_value(ref, "absent, and without a default"))
                return None
        if path not in self.exact:
            self.tell(problems.no_number(ref))
            return None
        return self.exact[path]

    def names(self) -> list[str]:
        """Everything that a reference may be called."""
        paths = [path for path in self.schemas if not path.startswith("target.")]
        return [*self.table.lets, *paths, "cluster.gpus", "gpu.memory"]

    def _is_let(self, ref: syntax.Ref) -> bool:
        return len(ref.path) == 1 and ref.path[0].text in self.table.lets

    def _let_value(self, ref: syntax.Ref) -> Any:
        name = ref.path[0].text
        if name in self._lets:
            return self._lets[name]
        let = self.table.lets.get(name)
        return None if let is None else self.let(let)

    def let(self, let: syntax.Let) -> Any:
        """The value of a `let`: a quantity, a string or a switch; None with the reason told."""
        name = let.name.text
        if name in self._lets:
            return self._lets[name]
        with self._entered(name, let.value.span) as entered:
            if not entered:
                return BAD
            expr = bare(let.value)
            match expr:
                case syntax.String() | syntax.Switch():
                    value: Any = expr.value
                case syntax.Ref() if self._is_let(expr):
                    value = self._let_value(expr)
                case syntax.Auto() | syntax.ListExpr():
                    found = arithmetic.kind_of(expr)
                    self.tell(problems.wrong_type(name, _LET_TYPES, expr, found))
                    value = BAD
                case _:
                    value = arithmetic.number(self, expr, None)
        self._lets[name] = value
        return value

    @contextmanager
    def _entered(self, name: str, span: Span) -> Iterator[bool]:
        """Guards a definition against rings and depth; yields False where it must not go on."""
        names = [entered for entered, _ in self._stack]
        if name in names:
            ring = self._stack[names.index(name) :]
            key = frozenset(entered for entered, _ in ring)
            if key not in self._told_rings:
                self._told_rings.add(key)
                self.tell(problems.cycle(ring))
            yield False
            return
        if len(self._stack) >= DEEPEST:
            if not self._told_deep:  # a longer chain would be told once every so many links
                self._told_deep = True
                self.tell(problems.chain_too_long(span, DEEPEST))
            yield False
            return
        self._stack.append((name, span))
        try:
            yield True
        finally:
            self._stack.pop()

    def tell(self, diagnostic: Diagnostic) -> None:
        """Takes a diagnostic."""
        self.diagnostics.append(diagnostic)


@cache
def _of_default(schema: FieldSchema) -> tuple[str, units.Quantity | None]:
    """A default that leans on nothing as it is shown, and exactly: the same in every file."""
    return shown(schema.default, schema.types), exactly(schema.default, schema.types)


_LET_TYPES = (Quantity(Dimension.COUNT), Text(), Switch())


def _fits(value: int, restricted: Open) -> bool:
    if restricted.choices is not None and value not in restricted.choices:
        return False
    return restricted.limit is None or value <= restricted.limit
