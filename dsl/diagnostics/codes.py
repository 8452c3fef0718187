"""The pages of the codes of family `P`: what `parlay explain P036` prints.

Imported by nothing that checks a file. Each page has the parts What, Why, Example and Instead;
Example and Instead are indented by four spaces and are what a test runs, but for the codes in
`NOT_RUN`, whose mistake does not stand in one text.
"""

from __future__ import annotations

from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.diagnostics.pages_files import PAGES as _FILES
from parlay.dsl.diagnostics.pages_statements import PAGES as _STATEMENTS
from parlay.dsl.diagnostics.pages_words import PAGES as _WORDS

CODES: dict[str, tuple[str, str]] = {**_FILES, **_WORDS, **_STATEMENTS}
"""Code -> (title, page)."""

NOT_RUN = frozenset(
    {"P001", "P002", "P003", "P004", "P005", "P006", "P008", "P070", "P101", "P102", "P103", "P104"}
)
"""Codes whose example is no single text: a file that is missing, imports that go round."""


def page(code: str) -> str | None:
    """The whole page with its title, ending in a newline; None for a code that is not here."""
    if code not in CODES:
        return None
    title, text = CODES[code]
    # An example may hold what a terminal would obey.
    lines = [harmless(line) for line in text.strip().splitlines()]
    return "\n".join([f"{code}: {title}", "", *lines, ""])


def part(code: str, name: str) -> str:
    """One part of a page without its indent: `part("P036", "Example")`; else empty."""
    lines: list[str] = []
    inside = False
    for line in CODES[code][1].strip().splitlines():
        if line and not line.startswith(" "):
            head, _, rest = line.partition(":")
            inside = head == name
            if inside and rest.strip():
                lines.append(rest.strip())
        elif inside:
            lines.append(line.removeprefix("    "))
    return "\n".join(lines).strip("\n")
