"""Python configurations, read through their syntax tree and never run: calls with keywords."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

_DEEPEST: Final = 200


@dataclass(slots=True)
class Called:
    """A call: the last part of its name, its keywords, and its line."""

    name: str
    keywords: dict[str, Any]
    line: int
    arguments: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Unread:
    """An expression that stands for no plain value; its text is kept."""

    text: str


class Module:
    """The calls of a module, with constants of its top level put in where they are named."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, Any] = {}
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
                if isinstance(target, ast.Name):
                    self._names[target.id] = self._value(statement.value, 0)
        self._tree = tree

    def functions(self) -> list[ast.FunctionDef]:
        """The functions of the top level."""
        return [node for node in self._tree.body if isinstance(node, ast.FunctionDef)]

    def calls(self, inside: ast.AST | None = None) -> Iterator[Called]:
        """Every call in the order of the text."""
        nodes = [n for n in ast.walk(inside or self._tree) if isinstance(n, ast.Call)]
        for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset)):
            yield self._call(node, 0)

    def assignments(self, function: ast.FunctionDef) -> Iterator[tuple[str, Any, str]]:
        """`config.a.b = value` inside of a function: `a.b`, the value, the text."""
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                path = _dotted(node.targets[0]).partition(".")[2]
                yield path, self._value(node.value, 0), ast.unparse(node)

    def _call(self, node: ast.Call, depth: int) -> Called:
        keywords = {k.arg: self._value(k.value, depth + 1) for k in node.keywords if k.arg}
        arguments = [self._value(argument, depth + 1) for argument in node.args]
        return Called(_dotted(node.func), keywords, node.lineno, arguments)

    def _value(self, node: ast.expr, depth: int) -> Any:
        if depth > _DEEPEST:
            return Unread("…")
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if node.id in self._names:
                return self._names[node.id]
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.List() | ast.Tuple():
                return [self._value(item, depth + 1) for item in node.elts]
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {
                    key.value: self._value(value, depth + 1)
                    for key, value in pairs
                    if isinstance(key, ast.Constant)
                }
            case ast.Call():
                return self._call(node, depth)
            case ast.Starred():
                return self._value(node.value, depth + 1)
        return Unread(ast.unparse(node))


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Attribute():
            return f"{_dotted(node.value)}.{node.attr}"
        case ast.Name():
            return node.id
    return "?"


def shown(value: Any) -> str:
    """A value as a line of what was not understood has it."""
    if isinstance(value, Called):
        return f"{value.name}(…)"
    if isinstance(value, list) and any(isinstance(item, Called | Unread) for item in value):
        return f"[{', '.join(map(shown, value))}]"[:200]
    return value.text if isinstance(value, Unread) else repr(value)[:200]
