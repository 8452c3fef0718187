"""Trees of the language made by chance, a printer for them, and changes that keep their sense."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import strategies as st
from parlay.dsl import syntax
from parlay.dsl.source import Span
from parlay.dsl.units import UNITS, Dimension, literal

HERE = Span("run.par", 0, 0)
NAMES = ("tp", "layers", "x1", "B", "Ki", "long_name", "min", "_", "s", "model")
RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2}

# ── Printing ──────────────────────────────────────────────────────────────────


def text_of(node: Any) -> str:
    """A tree as text, one space between all words and parentheses where the tree has them."""
    match node:
        case syntax.File():
            return "\n".join(map(text_of, node.statements)) + "\n"
        case syntax.Let():
            return f"let {node.name.text} = {text_of(node.value)}"
        case syntax.Import():
            return f"import {text_of(node.path)}"
        case syntax.Assert():
            return f"assert {text_of(node.left)} {node.operator} {text_of(node.right)}"
        case syntax.Allow():
            return f"allow {node.code.text} {text_of(node.reason)}"
        case syntax.Block():
            words = [node.keyword.text]
            words += [text_of(node.label)] if node.label else []
            words += [f"from {text_of(node.preset)}"] if node.preset else []
            words += (
                ["{ " + "\n".join(map(text_of, node.body)) + " }"] if node.body is not None else []
            )
            return " ".join(words)
        case syntax.Field():
            value = text_of(node.value)
            return value if node.short else f"{node.name.text} = {value}"
        case syntax.Name() | syntax.Number():
            return node.text
        case syntax.String():
            plain = node.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{plain}"'
        case syntax.Switch():
            return "on" if node.value else "off"
        case syntax.Ref():
            return ".".join(name.text for name in node.path)
        case syntax.ListExpr():
            return f"[{', '.join(map(text_of, node.items))}]"
        case syntax.Call():
            return f"{node.name.text}({', '.join(map(text_of, node.arguments))})"
        case syntax.Argument():
            return (f"{node.name.text} = " if node.name else "") + text_of(node.value)
        case syntax.Unary():
            return f"-{text_of(node.operand)}"
        case syntax.Binary():
            return f"{text_of(node.left)} {node.operator} {text_of(node.right)}"
        case syntax.Group():
            return f"({text_of(node.inner)})"
        case syntax.Auto():
            if node.choices is not None:
                return f"auto in [{', '.join(map(text_of, node.choices))}]"
            return "auto" if node.limit is None else f"auto <= {text_of(node.limit)}"
    raise AssertionError(node)


# ── Trees by chance ───────────────────────────────────────────────────────────

names = st.sampled_from(NAMES).map(lambda text: syntax.Name(text, HERE))
strings = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.sampled_from(' \n\\"#{$'),
    max_size=12,
).map(lambda value: syntax.String(value, HERE))


@st.composite
def numbers(draw: st.DrawFn) -> syntax.Number:
    digits = draw(st.sampled_from(("0", "1", "8", "64", "4096", "0.5", "1.25", "3e-4", "1_000")))
    unit = draw(st.sampled_from(sorted(UNITS)))
    value = Fraction(digits.replace("_", ""))
    return syntax.Number(value, unit, digits + unit, HERE)


def _grouped(expr: syntax.Expr, needed: bool) -> syntax.Expr:
    return syntax.Group(expr, HERE) if needed else expr


@st.composite
def binaries(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> syntax.Binary:
    sign = draw(st.sampled_from(sorted(RANK)))
    left, right = draw(inner), draw(inner)

    def rank(expr: syntax.Expr) -> int:
        if isinstance(expr, syntax.Binary):
            return RANK[expr.operator]
        return 0 if isinstance(expr, syntax.Unary) else 9

    return syntax.Binary(
        sign,  # type: ignore[arg-type]
        _grouped(left, rank(left) < RANK[sign]),
        _grouped(right, rank(right) <= RANK[sign]),
        HERE,
    )


def _call(name: syntax.Name, arguments: list[syntax.Argument]) -> syntax.Call:
    return syntax.Call(name, tuple(arguments), HERE)


def _argument(name: syntax.Name | None, value: syntax.Expr) -> syntax.Argument:
    return syntax.Argument(name, value, HERE)


refs = st.lists(names, min_size=1, max_size=3).map(lambda path: syntax.Ref(tuple(path), HERE))
atoms = numbers() | strings | refs | st.booleans().map(lambda on: syntax.Switch(on, HERE))


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        binaries(inner)
        | inner.map(lambda e: syntax.Group(e, HERE))
        | inner.map(
            lambda e: syntax.Unary(
                "-", _grouped(e, isinstance(e, syntax.Binary | syntax.Unary)), HERE
            )
        )
        | st.lists(inner, max_size=3).map(lambda items: syntax.ListExpr(tuple(items), HERE))
        | st.builds(
            _call, names, st.lists(st.builds(_argument, st.none() | names, inner), max_size=3)
        )
    )


exprs: st.SearchStrategy[Any] = st.recursive(atoms, _wider, max_leaves=8)
autos = st.one_of(
    st.just(syntax.Auto(None, None, HERE)),
    st.lists(exprs, min_size=1, max_size=3).map(lambda c: syntax.Auto(tuple(c), None, HERE)),
    exprs.map(lambda limit: syntax.Auto(None, limit, HERE)),
)
fields = st.builds(
    lambda name, value, short: syntax.Field(
        value.name if short and isinstance(value, syntax.Call) else name,
        value,
        short and isinstance(value, syntax.Call),
        HERE,
    ),
    names,
    exprs | autos,
    st.booleans(),
)


def _block(
    keyword: syntax.Name,
    label: syntax.Name | syntax.String | None,
    preset: syntax.String | None,
    body: list[Any] | None,
) -> syntax.Block:
    if body is None and preset is None:
        body = []
    return syntax.Block(keyword, label, preset, None if body is None else tuple(body), HERE)


inner_blocks: st.SearchStrategy[Any] = st.recursive(
    st.builds(
        _block, names, st.none(), st.none() | strings, st.none() | st.lists(fields, max_size=3)
    ),
    lambda below: st.builds(
        _block, names, st.none(), st.none() | strings, st.lists(fields | below, max_size=3)
    ),
    max_leaves=4,
)
blocks = st.builds(
    _block,
    names,
    st.none() | names | strings,
    st.none() | strings,
    st.none() | st.lists(fields | inner_blocks, max_size=4),
)
statements = (
    st.builds(syntax.Let, names, exprs, st.just(HERE))
    | st.builds(syntax.Import, strings, st.just(HERE))
    | st.builds(
        syntax.Assert,
        exprs,
        st.sampled_from(("<", "<=", ">", ">=", "==", "!=")),
        exprs,
        st.just(HERE),
    )
    | st.builds(syntax.Allow, names, strings, st.just(HERE))
    | blocks
)
files = st.lists(statements, min_size=1, max_size=5).map(
    lambda made: syntax.File(tuple(made), (), HERE)
)


# ── Changes that keep the sense ───────────────────────────────────────────────


def changed(node: Any, change: Any) -> Any:
    """The tree with `change` applied to every node, from the leaves up."""
    if isinstance(node, tuple) and not isinstance(node, Span):
        return tuple(changed(each, change) for each in node)
    if not hasattr(node, "__dataclass_fields__"):
        return node
    values = {name: changed(getattr(node, name), change) for name in node.__dataclass_fields__}
    return change(replace(node, **values))


def renamed_lets(file: syntax.File) -> syntax.File:
    """Every `let` under another name, everywhere."""
    lets = {s.name.text for s in file.statements if isinstance(s, syntax.Let)}

    def rename(node: Any) -> Any:
        match node:
            case syntax.Let():
                return replace(node, name=replace(node.name, text=f"{node.name.text}_other"))
            case syntax.Ref(path=(name,)) if name.text in lets:
                return replace(node, path=(replace(name, text=f"{name.text}_other"),))
        return node

    return changed(file, rename)  # type: ignore[no-any-return]


def reordered(file: syntax.File, chance: Random) -> syntax.File:
    """Fields, blocks and statements in another order; phases stay in theirs, which counts."""

    def shuffle(node: Any) -> Any:
        if isinstance(node, syntax.Block) and node.body:
            return replace(node, body=tuple(chance.sample(node.body, len(node.body))))
        return node

    made = changed(file, shuffle)
    plain = [each for each in made.statements if not _phase(each)]
    phases = [each for each in made.statements if _phase(each)]
    return replace(made, statements=(*chance.sample(plain, len(plain)), *phases))  # type: ignore[no-any-return]


def _phase(statement: syntax.Statement) -> bool:
    return isinstance(statement, syntax.Block) and statement.kind == "phase"


def split(file: syntax.File, chance: Random) -> tuple[syntax.File, syntax.File]:
    """The file, importing a part of its statements from another one called `part.par`."""
    moved = [each for each in file.statements if not _phase(each) and chance.random() < 0.5]
    kept = [each for each in file.statements if each not in moved]
    path = syntax.Import(syntax.String("part.par", HERE), HERE)
    return replace(file, statements=(path, *kept)), replace(file, statements=tuple(moved))


def converted(file: syntax.File, chance: Random) -> syntax.File:
    """Numbers in other units of their dimension, or plainer, where that is one number token."""

    def convert(node: Any) -> Any:
        if not isinstance(node, syntax.Number) or len(UNITS[node.unit]) > 1:
            return node
        dimension, factor = UNITS[node.unit][0]
        options = [
            str(number.numerator) + unit
            for unit, readings in UNITS.items()
            if len(readings) == 1
            and readings[0][0] is dimension
            and (number := node.value * factor / readings[0][1]).denominator == 1
            and number < 10**30
        ]
        if dimension is not Dimension.SHARE:
            plain = literal(node.value * factor, dimension)
            options += [] if " " in plain else [plain]
        return replace(node, text=chance.choice(options)) if options else node

    return changed(file, convert)  # type: ignore[no-any-return]
