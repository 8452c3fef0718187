"""Fields to values: references, arithmetic with dimensions, and the types of the schema.

Evaluation is lazy and memoised, so fields may refer to each other in any order; a ring of
references is told once, with all its places. A value in error is None and is not told again by
what depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final

from parlay.compiler.spec import arithmetic, problems
from parlay.compiler.spec.entries import Entry, Table
from parlay.compiler.spec.origins import Kind, Origin
from parlay.compiler.spec.schema import (
    REQUIRED,
    Case,
    Choice,
    Derived,
    FieldSchema,
    FieldType,
    ListOf,
    Open,
    Quantity,
    Setting,
    Switch,
    Text,
    Variant,
)
from parlay.compiler.spec.shown import shown
from parlay.dsl import syntax, units
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Span
from parlay.dsl.units import Dimension

DEEPEST: Final = 100  # definitions that lean on each other
FUNCTIONS: Final = ("min", "max", "ceil", "floor")
ALIASES: Final = {"gpu": "cluster.node.gpu", "node": "cluster.node"}
BAD: Final = None


class Evaluator:
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
        expr = _bare(entry.value)
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
            expr = _bare(expr)
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
            self.origins[path] = Origin(Kind.DEFAULT, place, "", shown(value, schema.types))
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

    def _keep_exact(self, path: str, value: Any, types: tuple[FieldType, ...]) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            kind = next((t for t in types if isinstance(t, Quantity)), None)
            if kind is not None:
                self.exact[path] = units.Quantity(Fraction(str(value)), kind.dimension)

    # ── auto ──────────────────────────────────────────────────────────────────

    def _auto(self, path: str, auto: syntax.Auto, entry: Entry, schema: FieldSchema) -> Any:
        if not schema.open:
            self._tell(problems.auto_not_taken(path.rpartition(".")[2], auto.span))
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
                self._tell(problems.auto_without_solution("dp", value, auto.span, words))
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
            read = [self.convert(path, _bare(item), kinds) for item in auto.choices]
            choices = tuple(value for value in read if value is not None)
        limit = None
        if auto.limit is not None:
            limit = self.convert(path, _bare(auto.limit), schema.types)
        return Open(choices, limit)

    # ── types ─────────────────────────────────────────────────────────────────

    def convert(self, path: str, expr: syntax.Expr, types: tuple[FieldType, ...]) -> Any:
        """`expr` as a value of one of `types`, or None with the reason told."""
        expr = _bare(expr)
        name = path.rpartition(".")[2]
        by_type = {type(type_): type_ for type_ in types}
        match expr:
            case syntax.Switch() if Switch in by_type:
                return expr.value
            case syntax.String() if Text in by_type:
                return expr.value
            case syntax.ListExpr() if ListOf in by_type:
                item = by_type[ListOf]
                assert isinstance(item, ListOf)
                values = tuple(self.convert(path, e, (item.item,)) for e in expr.items)
                return BAD if any(value is None for value in values) else values
            case syntax.Ref() if len(expr.path) == 1 and self._named(expr, by_type) is not None:
                return self._enumerated(path, expr, by_type)
            case syntax.Call() if Variant in by_type and expr.name.text not in FUNCTIONS:
                variant = by_type[Variant]
                assert isinstance(variant, Variant)
                case_ = variant.case(expr.name.text)
                if case_ is None:
                    ref = syntax.Ref((expr.name,), expr.name.span)
                    names = [c.name for c in variant.cases]
                    self._tell(problems.unknown_choice(name, ref, names))
                    return BAD
                return self._setting(path, case_, expr.arguments, expr.span)
        return self._other(path, expr, by_type, types)

    def _other(
        self,
        path: str,
        expr: syntax.Expr,
        by_type: dict[type, FieldType],
        types: tuple[FieldType, ...],
    ) -> Any:
        """What is neither a literal of a type nor a name of an enumeration."""
        name = path.rpartition(".")[2]
        if isinstance(expr, syntax.Ref):
            target = self._let_value(expr) if len(expr.path) == 1 else None
            if isinstance(target, bool) and Switch in by_type:
                return target
            if isinstance(target, str) and Text in by_type:
                return target
            known = self._known_names(by_type)
            if known and Quantity not in by_type:
                if not self._is_let(expr):
                    self._tell(problems.unknown_choice(name, expr, known))
                return BAD
        quantity_type = by_type.get(Quantity)
        if isinstance(quantity_type, Quantity) and isinstance(
            expr, syntax.Number | syntax.Unary | syntax.Binary | syntax.Ref | syntax.Call
        ):
            return self._quantity(path, expr, quantity_type)
        self._tell(problems.wrong_type(name, types, expr, arithmetic.kind_of(expr)))
        return BAD

    def _named(self, expr: syntax.Ref, by_type: dict[type, FieldType]) -> str | None:
        text = expr.path[0].text
        return text if text in self._known_names(by_type) else None

    def _known_names(self, by_type: dict[type, FieldType]) -> list[str]:
        choice, variant = by_type.get(Choice), by_type.get(Variant)
        names = list(choice.values) if isinstance(choice, Choice) else []
        return names + [c.name for c in variant.cases] if isinstance(variant, Variant) else names

    def _enumerated(self, path: str, expr: syntax.Ref, by_type: dict[type, FieldType]) -> Any:
        text = expr.path[0].text
        variant = by_type.get(Variant)
        case_ = variant.case(text) if isinstance(variant, Variant) else None
        return text if case_ is None else self._setting(path, case_, (), expr.span)

    def _setting(
        self, path: str, case: Case, arguments: tuple[syntax.Argument, ...], span: Span
    ) -> Setting | None:
        options: dict[str, Any] = {}
        flags: list[str] = []
        known = {option.name: option for option in case.options}
        good = True
        places: dict[str, Span] = {}
        for argument in arguments:
            if argument.name is None:
                flag = self._flag(case, argument.value)
                good = good and flag is not None
                flags.extend([flag] if flag else [])
                continue
            option = known.get(argument.name.text)
            if option is None:
                self._tell(problems.unknown_option(case.name, argument.name, list(known)))
                good = False
            elif option.name in places:
                self._tell(problems.given_twice("option", argument.name, places[option.name]))
                good = False
            else:
                places[option.name] = argument.name.span
                below = f"{path}.{option.name}"
                value = self.convert(below, argument.value, option.types)
                said = shown(value, option.types)
                self.origins[below] = Origin(
                    Kind.FILE, argument.value.span, "", said, *self._literal(argument.value)
                )
                self._keep_exact(below, value, option.types)
                options[option.name] = value
                good = good and value is not None
        missing = [o.name for o in case.options if o.default is REQUIRED and o.name not in places]
        if missing:
            self._tell(problems.option_missing(case.name, missing, span))
            good = False
        for option in case.options:
            if option.name not in places and option.default is not REQUIRED:
                options[option.name] = option.default
                below = f"{path}.{option.name}"
                self.origins[below] = Origin(
                    Kind.DEFAULT, span, "", shown(option.default, option.types)
                )
        return Setting(case.name, options, tuple(flags)) if good else None

    def _flag(self, case: Case, expr: syntax.Expr) -> str | None:
        expr = _bare(expr)
        if isinstance(expr, syntax.Ref) and len(expr.path) == 1:
            if expr.path[0].text in case.flags:
                return expr.path[0].text
            self._tell(problems.unknown_choice(case.name, expr, case.flags))
            return None
        takes = ", ".join([*(f"{o.name} = …" for o in case.options), *case.flags]) or "no arguments"
        self._tell(problems.wrong_arguments(case.name, takes, expr.span))
        return None

    def _quantity(self, path: str, expr: syntax.Expr, type_: Quantity) -> int | float | None:
        name = path.rpartition(".")[2]
        read = arithmetic.number(self, expr, type_.dimension)
        if read is None:
            return BAD
        value = read.value
        if read.dimension is not type_.dimension:
            bare_share = type_.dimension is Dimension.SHARE and read.dimension is Dimension.COUNT
            plain = type_.dimension is Dimension.COUNT and read.dimension is Dimension.SHARE
            if not bare_share and not (plain and not type_.integer):
                self._tell(
                    problems.wrong_dimension(
                        f"`{name}`", type_.dimension, read.dimension, expr.span
                    )
                )
                return BAD
        if type_.integer and value.denominator != 1:
            self._tell(problems.not_whole(name, value, expr.span))
            return BAD
        if (
            (type_.above is not None and value <= type_.above)
            or (type_.minimum is not None and value < type_.minimum)
            or (type_.maximum is not None and value > type_.maximum)
        ):
            self._tell(problems.out_of_bounds(name, value, type_, expr.span))
            return BAD
        self.exact[path] = units.Quantity(value, type_.dimension)
        return int(value) if type_.integer else float(value)

    # ── references ────────────────────────────────────────────────────────────

    def refer(self, ref: syntax.Ref) -> units.Quantity | None:
        """The exact number that a name or path stands for, or None with the reason told."""
        if len(ref.path) == 1:
            value = self._let_value(ref)
            if value is None:
                if not self._is_let(ref) and ref.path[0].text not in self.table.unread:
                    self._tell(problems.unknown_name(ref, self.names()))
                return None
            if isinstance(value, units.Quantity):
                return value
            self._tell(problems.no_value(ref, "this is no number"))
            return None
        path = ".".join(name.text for name in ref.path)
        head, _, rest = path.partition(".")
        path = f"{ALIASES[head]}.{rest}" if head in ALIASES else path
        if path not in self.schemas and path != "cluster.gpus" and path not in self.exact:
            parent = path.rpartition(".")[0]
            if parent in self.schemas:
                self.field(parent)  # an option of a variant
            if path not in self.exact:
                self._tell(problems.unknown_name(ref, self.names()))
                return None
        if path in self.schemas or path == "cluster.gpus":
            value = self.field(path)
            if value is None:
                if path not in self.broken and path not in self.open:
                    self._tell(problems.no_value(ref, "absent, and without a default"))
                return None
        if path not in self.exact:
            self._tell(problems.no_value(ref, "this is no number"))
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
            expr = _bare(let.value)
            match expr:
                case syntax.String() | syntax.Switch():
                    value: Any = expr.value
                case syntax.Ref() if self._is_let(expr):
                    value = self._let_value(expr)
                case syntax.Auto() | syntax.ListExpr():
                    found = arithmetic.kind_of(expr)
                    self._tell(problems.wrong_type(name, _LET_TYPES, expr, found))
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
                self._tell(problems.cycle(ring))
            yield False
            return
        if len(self._stack) >= DEEPEST:
            if not self._told_deep:  # a longer chain would be told once every so many links
                self._told_deep = True
                self._tell(problems.chain_too_long(span, DEEPEST))
            yield False
            return
        self._stack.append((name, span))
        try:
            yield True
        finally:
            self._stack.pop()

    def _tell(self, diagnostic: Diagnostic) -> None:
        self.diagnostics.append(diagnostic)

    tell = _tell


_LET_TYPES = (Quantity(Dimension.COUNT), Text(), Switch())


def _bare(expr: syntax.Expr) -> syntax.Expr:
    while isinstance(expr, syntax.Group):
        expr = expr.inner
    return expr


def _fits(value: int, restricted: Open) -> bool:
    if restricted.choices is not None and value not in restricted.choices:
        return False
    return restricted.limit is None or value <= restricted.limit
