"""Expressions to values of a field's types: numbers, names, lists, settings with options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, Final

from parlay.compiler.spec import arithmetic, problems
from parlay.compiler.spec.origins import Kind, Origin
from parlay.compiler.spec.schema import (
    REQUIRED,
    Case,
    Choice,
    FieldType,
    ListOf,
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

FUNCTIONS: Final = ("min", "max", "ceil", "floor")
BAD: Final = None


class Converter(ABC):
    """What `Evaluator` knows of types; it supplies the tables, the references and the telling.

    `exact` keeps the number behind a value, `origins` the places of a setting's options.
    """

    exact: dict[str, units.Quantity]
    origins: dict[str, Origin]

    @abstractmethod
    def tell(self, diagnostic: Diagnostic) -> None:
        """Takes a diagnostic."""

    @abstractmethod
    def refer(self, ref: syntax.Ref) -> units.Quantity | None:
        """The exact number that a name or path stands for, or None with the reason told."""

    @abstractmethod
    def _is_let(self, ref: syntax.Ref) -> bool: ...

    @abstractmethod
    def _literal(self, expr: syntax.Expr) -> tuple[str, Span | None]: ...

    @abstractmethod
    def _let_value(self, ref: syntax.Ref) -> Any: ...

    def convert(self, path: str, expr: syntax.Expr, types: tuple[FieldType, ...]) -> Any:
        """`expr` as a value of one of `types`, or None with the reason told."""
        expr = bare(expr)
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
                    self.tell(problems.unknown_choice(name, ref, names))
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
                    self.tell(problems.unknown_choice(name, expr, known))
                return BAD
        quantity_type = by_type.get(Quantity)
        if isinstance(quantity_type, Quantity) and isinstance(
            expr, syntax.Number | syntax.Unary | syntax.Binary | syntax.Ref | syntax.Call
        ):
            return self._quantity(path, expr, quantity_type)
        self.tell(problems.wrong_type(name, types, expr, arithmetic.kind_of(expr)))
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
                self.tell(problems.unknown_option(case.name, argument.name, list(known)))
                good = False
            elif option.name in places:
                self.tell(problems.given_twice("option", argument.name, places[option.name]))
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
            self.tell(problems.option_missing(case.name, missing, span))
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
        expr = bare(expr)
        if isinstance(expr, syntax.Ref) and len(expr.path) == 1:
            if expr.path[0].text in case.flags:
                return expr.path[0].text
            self.tell(problems.unknown_choice(case.name, expr, case.flags))
            return None
        takes = ", ".join([*(f"{o.name} = …" for o in case.options), *case.flags]) or "no arguments"
        self.tell(problems.wrong_arguments(case.name, takes, expr.span))
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
                self.tell(
                    problems.wrong_dimension(
                        f"`{name}`", type_.dimension, read.dimension, expr.span
                    )
                )
                return BAD
        if type_.integer and value.denominator != 1:
            self.tell(problems.not_whole(name, value, expr.span))
            return BAD
        if (
            (type_.above is not None and value <= type_.above)
            or (type_.minimum is not None and value < type_.minimum)
            or (type_.maximum is not None and value > type_.maximum)
        ):
            self.tell(problems.out_of_bounds(name, value, type_, expr.span))
            return BAD
        self.exact[path] = units.Quantity(value, type_.dimension)
        return int(value) if type_.integer else float(value)

    def _keep_exact(self, path: str, value: Any, types: tuple[FieldType, ...]) -> None:
        exact = exactly(value, types)
        if exact is not None:
            self.exact[path] = exact


def exactly(value: Any, types: tuple[FieldType, ...]) -> units.Quantity | None:
    """A number with its dimension, without what its spelling as a float adds; None of others."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        kind = next((t for t in types if isinstance(t, Quantity)), None)
        if kind is not None:
            return units.Quantity(Fraction(str(value)), kind.dimension)
    return None


def bare(expr: syntax.Expr) -> syntax.Expr:
    """`expr` without the parentheses around it."""
    while isinstance(expr, syntax.Group):
        expr = expr.inner
    return expr
