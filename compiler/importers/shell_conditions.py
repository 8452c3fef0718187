"""Conditions of a shell script, as far as its own text decides them: `[ … ]`, `[[ … ]]`, `(( … ))`.

A value is yes, no, or None where it hangs on what no script says: files, the environment, what a
command ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from parlay.compiler.importers import shell_text

Expand = Callable[[str], str | None]
"""A written word to its value; None where a variable in it has none."""

Truth = bool | None

_NUMBERS: Final = {"-eq": eq, "-ne": ne, "-gt": gt, "-lt": lt, "-ge": ge, "-le": le}
_OF_FILES: Final = tuple(f"-{letter}" for letter in "abcdefghkprstuvwxGLNOS")
_TESTS: Final = ("[", "[[", "test")


def is_test(raw: str) -> bool:
    """Whether a statement asks something, and does nothing."""
    first = raw.removeprefix("!").split(maxsplit=1)
    return bool(first) and (first[0] in _TESTS or raw.startswith("(("))


def decide(parts: Iterable[tuple[str, str]], expand: Expand, sum_of: Callable[[str], str]) -> Truth:
    """The value of statements, each with what stands before it: `&&`, `||`, or else.

    `sum_of` gives the value of arithmetic as a text, or the text of what is none.
    """
    found: Truth = None
    for joined, raw in parts:
        value = _one(raw, expand, sum_of)
        if joined == "&&":
            found = _both(found, value)
        elif joined == "||":
            found = _either(found, value)
        else:
            found = None if joined == "|" else value
    return found


def _both(first: Truth, second: Truth) -> Truth:
    if first is False or second is False:
        return False
    return True if first and second else None


def _either(first: Truth, second: Truth) -> Truth:
    if first or second:
        return True
    return None if first is None or second is None else False


def _not(value: Truth) -> Truth:
    return None if value is None else not value


def _one(raw: str, expand: Expand, sum_of: Callable[[str], str]) -> Truth:
    if raw.startswith("! "):
        return _not(_one(raw[2:].strip(), expand, sum_of))
    if raw.startswith("((") and raw.endswith("))"):
        value = sum_of(raw[2:-2])
        return value != "0" if value.lstrip("-").isdecimal() else None
    words = list(shell_text.words(raw))
    if words in (["true"], [":"], ["false"]):
        return words != ["false"]
    ends = {"[": "]", "[[": "]]"}
    if not words or words[0] not in _TESTS:
        return None
    if words[0] in ends:
        if words[-1] != ends[words[0]]:
            return None
        words = words[:-1]
    try:
        asked = _Asked(words[1:], expand, globs=words[0] == "[[")
        found = asked.either()
    except (IndexError, ValueError, RecursionError):
        return None
    return found if asked.ended else None


class _Asked:
    """Reads the words between the brackets."""

    def __init__(self, words: Sequence[str], expand: Expand, *, globs: bool) -> None:
        self._words, self._expand, self._globs = words, expand, globs
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._words)

    def _next(self) -> str:
        return "" if self.ended else self._words[self._at]

    def _take(self) -> str:
        word = self._words[self._at]
        self._at += 1
        return word

    def either(self) -> Truth:
        found = self._all()
        while self._next() in ("||", "-o"):
            self._at += 1
            found = _either(found, self._all())
        return found

    def _all(self) -> Truth:
        found = self._single()
        while self._next() in ("&&", "-a"):
            self._at += 1
            found = _both(found, self._single())
        return found

    def _single(self) -> Truth:
        if self.ended:
            return False
        word = self._take()
        if word == "!":
            return _not(self._single())
        if word == "(":
            found = self.either()
            if self._take() != ")":
                raise ValueError
            return found
        if word in ("-z", "-n"):
            value = self._expand(self._take())
            return None if value is None else (value == "") == (word == "-z")
        if word in _OF_FILES and not self.ended:
            self._at += 1
            return None
        left = self._expand(word)
        if self._next() in ("", "&&", "||", "-a", "-o"):
            return None if left is None else left != ""
        return self._compared(left)

    def _compared(self, left: str | None) -> Truth:
        sign, written = self._take(), self._take()
        right = self._expand(written)
        if left is None or right is None:
            return None
        if sign in ("=", "==", "!="):
            plain = written[:1] in ("'", '"') or not self._globs
            same = left == right if plain else fnmatchcase(left, right)
            return same == (sign != "!=")
        if sign in _NUMBERS:
            numbers = [int(text) for text in (left, right)]
            return bool(_NUMBERS[sign](*numbers))
        return None
