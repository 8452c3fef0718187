"""A `.par` file made of blocks and fields, with what was assumed and not understood on top."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Final

from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

WIDTH: Final = 96

_NUMBER: Final = re.compile(r"\d{1,18}(\.\d{1,18})?(?:[eE]([+-]?\d{1,2}))?", re.ASCII)

Fields = dict[str, Any]
"""Field -> its text in the language, or the fields of a block."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an importer makes of a file: the text, and what a person should look at.

    `assumed` is what the source does not say and a job needs, `lost` what is not understood and
    stands in the text as a comment alone.
    """

    text: str
    assumed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(slots=True)
class Draft:
    """Blocks in the making: block -> fields; `heads` are texts such as `model from "x"`."""

    title: str
    blocks: dict[str, Fields] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def set(self, path: str, text: str) -> None:
        """Gives the field at `block.field` or `block.block.field` a text."""
        *blocks, name = path.split(".")
        inside: Fields = self.blocks
        for block in blocks:
            inside = inside.setdefault(block, {})
        inside[name] = text

    def finished(self) -> Imported:
        """The formatted text."""
        lines = [f"# {line}" for line in wrap(self.title, WIDTH)]
        lines += _comment("Assumed, since the source does not say", self.assumed)
        lines += _comment("Not understood, and kept here alone", self.lost)
        for name, fields in self.blocks.items():
            if fields or name in self.heads:
                lines.append("")
                head = self.heads.get(name, name)
                lines += _block(head, fields, "") if fields else [head]
        text = "\n".join(lines) + "\n"
        source = Source("<imported>", text)
        tree, told = parse(source)
        assert not told, f"an importer writes what can be read: {told[0].message}"
        return Imported(format(tree, source), tuple(self.assumed), tuple(self.lost))


def _comment(title: str, lines: Iterable[str]) -> list[str]:
    told = [f"#   {part}" for line in lines for part in wrap(plain(line), WIDTH) or [""]]
    return ["#", f"# {title}:", *told] if told else []


def _block(head: str, fields: Mapping[str, Any], indent: str) -> list[str]:
    lines = [f"{indent}{head} {{"]
    for name, value in fields.items():
        if isinstance(value, Mapping):
            lines += _block(name, value, indent + "  ")
        elif name.startswith("@"):
            lines.append(f"{indent}  {value}")
        else:
            lines.append(f"{indent}  {name} = {value}")
    return [*lines, f"{indent}}}"]


# ── Values as the language writes them ────────────────────────────────────────


def string(text: str) -> str:
    """A string: `"…"`; what has no shape, and may not stand in one, is a mark."""
    text = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def value(text: str) -> str:
    """What a command line has as a value: a number as it stands, all else as a string."""
    found = _NUMBER.fullmatch(text)
    return text if found and abs(int(found[2] or 0)) <= 30 else string(text)


def in_range(value: float) -> bool:
    """Whether the language has a number for it: 0, or one between 1e-30 and 1e30."""
    return value == 0 or 1e-30 <= abs(value) < 1e30


def switch(on: bool) -> str:
    """`on` or `off`."""
    return "on" if on else "off"


def number(value: float) -> str:
    """A number: whole floats without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def listing(texts: Iterable[str]) -> str:
    """`[…]`."""
    return f"[{', '.join(texts)}]"


def variant(name: str, **options: str) -> str:
    """`name(option = …)`, or the bare name."""
    inside = ", ".join(f"{option} = {text}" for option, text in options.items())
    return f"{name}({inside})" if inside else name


def plain(text: str) -> str:
    """One line that no terminal obeys."""
    return "".join(c if c.isprintable() else " " for c in text)
