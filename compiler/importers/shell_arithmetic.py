"""Whole-number arithmetic of the shell: `$(( … ))`, read and computed with bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_TOKEN: Final = re.compile(r"\s*(\d+|\*\*|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:])")
_LONGEST: Final = 2_000
_LARGEST: Final = 1 << 63

_LEVELS: Final[tuple[dict[str, Callable[[int, int], int]], ...]] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    # Towards zero, as the shell divides; what is left has the sign of the first.
    {
        "*": lambda a, b: a * b,
        "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    },
)


def value(text: str) -> int | None:
    """The value of an expression without names; None for what is no such thing."""
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None or len(text) > _LONGEST:
            return None
        tokens.append(found[1])
        at = found.end()
    reader = _Reader(tokens)
    try:
        result = reader.ternary()
    except (IndexError, ValueError, RecursionError):
        return None
    return result if reader.ended and result is not None and abs(result) < _LARGEST else None


def _joined(
    sign: str, made: Callable[[int, int], int], first: int | None, second: int | None
) -> int | None:
    """What a sign makes of two values; what the first decides does not ask the second."""
    if first is None or (sign == "||" and first) or (sign == "&&" and not first):
        return None if first is None else int(sign == "||")
    if second is None or (sign in "/%" and second == 0):
        return None
    found = made(first, second)
    return found if abs(found) < _LARGEST else None


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._tokens)

    def _next(self) -> str:
        return "" if self.ended else self._tokens[self._at]

    def _take(self, token: str) -> None:
        if self._next() != token:
            raise ValueError
        self._at += 1

    def ternary(self) -> int | None:
        chosen = self._level(0)
        if self._next() != "?":
            return chosen
        self._at += 1
        first = self.ternary()
        self._take(":")
        other = self.ternary()
        return None if chosen is None else first if chosen else other

    def _level(self, level: int) -> int | None:
        if level == len(_LEVELS):
            return self._power()
        found = self._level(level + 1)
        while (sign := self._next()) in _LEVELS[level]:
            self._at += 1
            found = _joined(sign, _LEVELS[level][sign], found, self._level(level + 1))
        return found

    def _power(self) -> int | None:
        base = self._atom()
        if self._next() != "**":
            return base
        self._at += 1
        exponent = self._power()
        if base is None or exponent is None or not 0 <= exponent < 64:
            return None
        return int(base**exponent)

    def _atom(self) -> int | None:
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":
            found = self.ternary()
            self._take(")")
            return found
        if token in ("-", "+", "!"):
            inner = self._atom()
            return None if inner is None else {"-": -inner, "+": inner, "!": int(not inner)}[token]
        return int(token)
