"""The tree of a `.par` file, exactly as written: nothing resolved, every node with its span."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from parlay.dsl.source import Span

# ── Small pieces ──────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Name:
    """A name where it stands: `tp`, `layers`."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Comment:
    """`# …` up to the end of its line; `text` starts with the `#`."""

    text: str
    span: Span


# ── Expressions ───────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Number:
    """`8`, `8Ki`, `400Gb/s`, `90%`, `3e-4`.

    `value` is the bare number without its unit, exact; `unit` is the unit's text or `""`.
    `text` is the token as written.
    """

    value: Fraction
    unit: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class String:
    """`"…"`; `value` has its escapes undone, the span includes the quotes."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Switch:
    """`on` or `off`."""

    value: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Auto:
    """`auto`, `auto in [1, 2, 4]`, `auto <= 8`: `choices` and `limit` restrict it."""

    choices: tuple[Expr, ...] | None
    limit: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Ref:
    """A name or a path: `bf16`, `tokens_per_sequence`, `model.layers`."""

    path: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class ListExpr:
    """`[a, b, c]`."""

    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Argument:
    """`name = value` or a bare value inside a call's parentheses (`name` is None)."""

    name: Name | None
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """`name(…)`: a variant with options (`adamw(lr = 3e-4)`) or a function (`min(a, b)`).

    Which of the two it is, only the field that holds it knows.
    """

    name: Name
    arguments: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`."""

    operator: Literal["-"]
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """`a + b`; parentheses are kept as `Group`."""

    operator: Literal["+", "-", "*", "/", "//"]
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Group:
    """`( … )`."""

    inner: Expr
    span: Span


Expr = Number | String | Switch | Auto | Ref | ListExpr | Call | Unary | Binary | Group


# ── Statements ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Field:
    """`name = value` in a block, or the short form `rope(theta = 5e5)` for `rope = rope(…)`."""

    name: Name
    value: Expr
    short: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Block:
    """`kind LABEL? (from "preset")? { … }`; one of `preset` and `body` at least is there.

    `keyword` is the block's first word; `body` is None where no braces stand.
    A `phase` is a block of kind `phase` with a string label whose body holds blocks.
    `lost` names the fields and blocks in it that could not be read: what misses one of them only
    follows from a mistake already told.
    """

    keyword: Name
    label: Name | String | None
    preset: String | None
    body: tuple[Field | Block, ...] | None
    span: Span
    lost: tuple[Name, ...] = ()

    @property
    def kind(self) -> str:
        """The block's first word."""
        return self.keyword.text


@dataclass(frozen=True, slots=True)
class Let:
    """`let name = value`."""

    name: Name
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    """`import "path.par"`."""

    path: String
    span: Span


@dataclass(frozen=True, slots=True)
class Assert:
    """`assert left OP right`."""

    left: Expr
    operator: Literal["<", "<=", ">", ">=", "==", "!="]
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Allow:
    """`allow N201 "reason"`."""

    code: Name
    reason: String
    span: Span


Statement = Let | Import | Assert | Allow | Block


@dataclass(frozen=True, slots=True)
class File:
    """A whole file in order, with every comment; `lost` as in `Block`, of lets and blocks."""

    statements: tuple[Statement, ...]
    comments: tuple[Comment, ...]
    span: Span
    lost: tuple[Name, ...] = ()
