"""What stands at a place of the tree: a block, a field, a value, a reference, a preset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from parlay.compiler.spec.evaluate import ALIASES
from parlay.dsl import syntax
from parlay.dsl.source import Span


class What(StrEnum):
    """What a place is."""

    BLOCK = "block"
    FIELD = "field"
    OPTION = "option"
    CASE = "case"
    VALUE = "value"
    REF = "ref"
    LET = "let"
    PRESET = "preset"
    IMPORT = "import"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place: `path` is the field or block it lies in or names, `phase` the phase, if in one."""

    what: What
    span: Span
    path: str
    phase: str | None = None
    text: str = ""


def spot(file: syntax.File, offset: int) -> Spot | None:
    """The innermost thing at an offset, its end included; None between things."""
    found = None
    for each in spots(file):
        if each.span.start <= offset <= each.span.end and (
            found is None or offset < each.span.end or each.span.start > found.span.start
        ):
            found = each
    return found


def spots(file: syntax.File) -> Iterator[Spot]:
    """Everything that there is something to say of, what holds others before them."""
    for statement in file.statements:
        yield from _statement(statement)


def _statement(statement: syntax.Statement) -> Iterator[Spot]:
    match statement:
        case syntax.Let():
            name = statement.name
            yield Spot(What.LET, name.span, "", None, name.text)
            yield from _value(statement.value, "", None)
        case syntax.Import():
            yield Spot(What.IMPORT, statement.path.span, "", None, statement.path.value)
        case syntax.Allow():
            yield Spot(What.CODE, statement.code.span, "", None, statement.code.text)
        case syntax.Assert():
            yield from _value(statement.left, "", None)
            yield from _value(statement.right, "", None)
        case syntax.Block():
            yield from _top(statement)


def _top(block: syntax.Block) -> Iterator[Spot]:
    label = block.label.value if isinstance(block.label, syntax.String) else None
    if block.kind == "phase":
        yield Spot(What.BLOCK, block.keyword.span, "phase", label)
        yield from _items(block.body or (), "", label)
        return
    path = f"target.{label}" if block.kind == "target" and label is not None else block.kind
    yield from _block(block, path, None)


def _block(block: syntax.Block, path: str, phase: str | None) -> Iterator[Spot]:
    yield Spot(What.BLOCK, block.keyword.span, path, phase)
    if block.preset is not None:
        yield Spot(What.PRESET, block.preset.span, path, phase, block.preset.value)
    yield from _items(block.body or (), path, phase)


def _items(
    items: Iterable[syntax.Field | syntax.Block], path: str, phase: str | None
) -> Iterator[Spot]:
    for item in items:
        if isinstance(item, syntax.Block):
            below = f"{path}.{item.kind}" if path else item.kind
            yield from _block(item, below, phase)
            continue
        below = f"{path}.{item.name.text}"
        yield Spot(What.FIELD, item.name.span, below, phase)
        yield from _value(item.value, below, phase)


def _value(expr: syntax.Expr, path: str, phase: str | None) -> Iterator[Spot]:
    match expr:
        case syntax.Ref():
            text = ".".join(name.text for name in expr.path)
            yield Spot(What.REF, expr.span, path, phase, text)
        case syntax.Number() | syntax.String() | syntax.Switch():
            yield Spot(What.VALUE, expr.span, path, phase)
        case syntax.Auto():
            yield Spot(What.VALUE, expr.span, path, phase)
            for item in (*(expr.choices or ()), *((expr.limit,) if expr.limit else ())):
                yield from _value(item, path, phase)
        case syntax.ListExpr():
            for item in expr.items:
                yield from _value(item, path, phase)
        case syntax.Call():
            yield Spot(What.CASE, expr.name.span, path, phase, expr.name.text)
            for argument in expr.arguments:
                below = path
                if argument.name is not None:
                    below = f"{path}.{argument.name.text}"
                    yield Spot(What.OPTION, argument.name.span, below, phase)
                yield from _value(argument.value, below, phase)
        case syntax.Unary():
            yield from _value(expr.operand, path, phase)
        case syntax.Binary():
            yield from _value(expr.left, path, phase)
            yield from _value(expr.right, path, phase)
        case syntax.Group():
            yield from _value(expr.inner, path, phase)


def full(path: str) -> str:
    """A path with its alias written out: `gpu.memory` --> `cluster.node.gpu.memory`."""
    head, dot, rest = path.partition(".")
    return f"{ALIASES[head]}{dot}{rest}" if head in ALIASES else path
