"""YAML that every reader of it takes for the same values.

YAML 1.1 and 1.2, and the readers of Go and Python, differ in which bare words are switches and
numbers: `on`, `1e3`, `0o17`, `12:30`. So a string stands bare only where it is a plain word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

WIDTH: Final = 1 << 20
"""No value is folded: a field, a line."""

# libyaml, where it is there: a reader apart from the writer, and eight times as fast.
_Reader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORD: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*", re.ASCII)
_SWITCHES: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class _Dumper(yaml.SafeDumper):
    """Strings quoted unless they are words, texts of several lines as they stand."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # Items of a list stand further in than the key that holds them.
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        # What a terminal might obey is escaped; in blocks stands what is printable alone.
        self.allow_unicode = False
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    if _WORD.fullmatch(text) and text.lower() not in _SWITCHES:
        return None
    lines = text.split("\n")
    # In a block no reader folds lines or takes an escape: plain lines alone, as they stand.
    if len(lines) > 1 and all(line.isprintable() and line == line.rstrip() for line in lines):
        return "|"
    return '"'


_Dumper.add_representer(str, _string)


def document(values: Any) -> str:
    """One document, its keys in the given order; read back, it is what was given."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
    assert yaml.load(text, Loader=_Reader) == values, "what is written reads as something else"
    return text


def documents(values: Iterable[Any]) -> str:
    """Several documents, `---` before each."""
    return "".join(f"---\n{document(each)}" for each in values)
