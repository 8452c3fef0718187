"""Calls on one line or on several, as a formatter of 100 columns leaves them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from parlay.compiler.backends.render import Code

WIDTH: Final = 100


def call(before: str, arguments: Sequence[str], *, indent: int, after: str = ")") -> list[str]:
    """`before` + arguments + `after`, `before` ending in its open bracket; lines without indent.

    On one line where that fits, else with all arguments on a second line, else one to a line.
    """
    joined = ", ".join(arguments)
    if indent + len(before) + len(joined) + len(after) <= WIDTH:
        return [f"{before}{joined}{after}"]
    if indent + 4 + len(joined) <= WIDTH:
        return [before, f"    {joined}", after]
    return [before, *(f"    {argument}," for argument in arguments), after]


def comment(indent: int, text: str) -> Code:
    """`# text`, on as many lines as it takes; the first without its indent."""
    width = WIDTH - indent - 2
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return Code(f"\n{' ' * indent}".join(f"# {line}" for line in lines))


def says(text: str) -> str:
    """A class's docstring: one line where that fits, else several and one for the closing marks."""
    if len(text) + 10 <= WIDTH:
        return text
    lines = textwrap.wrap(text, WIDTH - 7, break_long_words=False, break_on_hyphens=False)
    return "\n    ".join([*lines, ""])


def tuple_of(items: Sequence[str]) -> str:
    """`(a,)`, `(a, b)`."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
