"""The page of a rule, as `parlay explain` prints it: the rule's docstring, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Final

from parlay.compiler.checks.rules import MODULES, Rule, rule

SECTIONS: Final = ("What", "Why", "Example", "Instead", "Source")


@dataclass(frozen=True, slots=True)
class Page:
    """Title and sections; `example` breaks the rule, `instead` does not."""

    code: str
    title: str
    what: str
    why: str
    example: str
    instead: str
    source: str

    @property
    def text(self) -> str:
        """The page as plain text, ending in a newline; files stand indented by four spaces."""
        return (
            f"{self.code}: {self.title}\n\n"
            f"What: {self.what}\n"
            f"Why: {self.why}\n"
            f"Example:\n{indent(self.example, '    ')}\n"
            f"Instead:\n{indent(self.instead, '    ')}\n"
            f"Source: {self.source}\n"
        )


def codes() -> tuple[str, ...]:
    """The codes that have a page."""
    return tuple(MODULES)


def page(code: str) -> Page | None:
    """The page of a general rule; None for an unknown code."""
    found = rule(code)
    return None if found is None else page_of(found)


def page_of(rule: Rule) -> Page:
    """A rule's docstring as its page."""
    assert rule.__doc__ is not None, f"{rule.CODE} has no page"
    _, *parts = re.split(rf"^({'|'.join(SECTIONS)})\n", rule.__doc__, flags=re.MULTILINE)
    bodies = dict(zip(parts[::2], map(_body, parts[1::2]), strict=True))
    return Page(rule.CODE, rule.TITLE, *(bodies.get(name, "") for name in SECTIONS))


def _body(text: str) -> str:
    return dedent(text).strip("\n")
