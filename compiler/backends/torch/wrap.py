"""Calls on one line or on several, as a formatter of 100 columns leaves them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from parlay.compiler.backends.render import Code

WIDTH: Final = 100
FIELD: Final = re.compile(r"[\w.]+ = [^,=]+? \([^()]+\)")
"""What `Structure.at` says of a field: `parallel.tp = 8 (job.par:4)`."""


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
    # A field, its value and its place stay on one line, as long as one holds them.
    kept = FIELD.sub(lambda field: field[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(kept, width, break_long_words=False, break_on_hyphens=False)
    if any(len(line) > width for line in lines):
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    said = (line.replace("\0", " ") for line in lines)
    return Code(f"\n{' ' * indent}".join(f"# {line}" for line in said))


def says(text: str) -> str:
    """A class's docstring: one line where that fits, else several and one for the closing marks."""
    if len(text) + 10 <= WIDTH:
        return text
    lines = textwrap.wrap(text, WIDTH - 7, break_long_words=False, break_on_hyphens=False)
    return "\n    ".join([*lines, ""])


def tuple_of(items: Sequence[str]) -> str:
    """`(a,)`, `(a, b)`."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
