"""Text on a terminal: what each code point looks like there and how many columns it takes."""

from __future__ import annotations

import re
from typing import NamedTuple

from parlay.dsl.odd import HIDDEN

TAB = "    "
_ODD = re.compile(rf"[\t\n{HIDDEN}]")
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]"
)


def harmless(text: str) -> str:
    """`text` in one line that a terminal prints and never obeys: what is hidden becomes visible."""
    return _ODD.sub(lambda found: _visible(found.group()), text)


def _visible(character: str) -> str:
    code = ord(character)
    if character == "\t":
        return TAB
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"\\u{{{code:X}}}"


class Cells(NamedTuple):
    """A line as printed: `shown[i]` for code point i, which starts at column `starts[i]`.

    `starts` has one more entry, the width of the whole line.
    """

    shown: list[str]
    starts: list[int]


def cells(line: str) -> Cells:
    """The line's code points as a terminal shows them, from left to right."""
    shown: list[str] = []
    starts = [0]
    for character in line:
        if _ODD.match(character):
            text = _visible(character)
            width = len(text)
        elif character.isascii():
            text, width = character, 1
        elif _RIGHT_TO_LEFT.match(character):
            # Letters written from right to left would reorder the line under its marks.
            text = f"\\u{{{ord(character):X}}}"
            width = len(text)
        else:
            text, width = character, _width(character)
        shown.append(text)
        starts.append(starts[-1] + width)
    return Cells(shown, starts)


def _width(character: str) -> int:
    # Only lines that need it pay for the import.
    from unicodedata import combining, east_asian_width

    if combining(character) or character in "\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
