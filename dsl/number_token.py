"""One number token: digits, groups, decimals, exponent and unit."""

from __future__ import annotations

import re
from fractions import Fraction

from parlay.dsl import slips
from parlay.dsl.diagnostics.record import Diagnostic
from parlay.dsl.odd import plain_word
from parlay.dsl.source import Source, Span
from parlay.dsl.units import UNITS

MOST_DIGITS = 40
LARGEST_EXPONENT = 30

_NUMBER = re.compile(r"([0-9]+(?:_[0-9]+)*)?(\.[0-9]+(?:_[0-9]+)*)?(?:[eE]([+-]?[0-9]+))?")
_WORD = re.compile(r"\w*")
_REST = re.compile(r"[\w.]*")
_PER = re.compile(r"/(\w+)")


def scan_number(source: Source, at: int) -> tuple[Fraction, str, int, Diagnostic | None]:
    """Value, unit and end of the number that starts at `at` with a digit or with `.5`.

    At most one diagnostic, the first mistake; value and unit are then a guess to go on with. The
    longest unit wins, and no letter, digit or `_` may follow it: `10GB/stages` is `10GB` and
    a division, `10GB/s` a rate. What looks like a rate and is none (`10MB/s`) is told.
    """
    text = source.text
    found = _NUMBER.match(text, at)
    assert found is not None
    end = found.end()
    whole, decimals, exponent = found.groups()
    value, told = _value(source.name, at, end, whole or "0", decimals or "", exponent or "0")
    unit, stop, mistake = _unit(source, at, end)
    return value, unit, stop, told or mistake


def _value(
    file: str, at: int, end: int, whole: str, decimals: str, exponent: str
) -> tuple[Fraction, Diagnostic | None]:
    whole, decimals = whole.replace("_", ""), decimals[1:].replace("_", "")
    span = Span(file, at, end)
    digits = len(whole) + len(decimals)
    if digits > MOST_DIGITS:
        return Fraction(0), slips.too_many_digits(span, digits, MOST_DIGITS)
    power = exponent.lstrip("+-").lstrip("0") or "0"
    # Lengths are compared first: a power of a thousand digits must cost nothing.
    if len(power) > 4 or int(power) > LARGEST_EXPONENT:
        return Fraction(0), slips.exponent_out_of_range(span, LARGEST_EXPONENT)
    signed = -int(power) if exponent.startswith("-") else int(power)
    return Fraction(int(whole + decimals)) * Fraction(10) ** (signed - len(decimals)), None


def _unit(source: Source, at: int, end: int) -> tuple[str, int, Diagnostic | None]:
    """The unit at `end` of the number that starts at `at`."""
    text = source.text
    following = text[end : end + 1]
    if following == "%" or text.startswith("$/h", end):
        unit = "%" if following == "%" else "$/h"
        stop = end + len(unit)
        rest = _WORD.match(text, stop)
        assert rest is not None
        if rest.group():
            return unit, rest.end(), _unknown(source, end, rest.end())
        return unit, stop, None
    found = _WORD.match(text, end)
    assert found is not None
    word, stop = found.group(), found.end()
    broken = following == "." or word.startswith("_") or word in ("e", "E")
    if broken or _hexadecimal(text, at, word):
        rest = _REST.match(text, end)
        assert rest is not None
        return "", rest.end(), slips.malformed_number(source, at, end, rest.end())
    if not word:
        return "", end, None
    per = _PER.match(text, stop)
    if per is not None:
        rate = word + per.group()
        if rate in UNITS:
            return rate, per.end(), None
        # `10MB/s` with no such unit would be a silent division by something called `s`.
        if per.group(1) in ("s", "h"):
            return "", per.end(), _unknown(source, end, per.end())
    if word in UNITS:
        return word, stop, None
    return "", stop, _unknown(source, end, stop)


def _hexadecimal(text: str, at: int, word: str) -> bool:
    return text[at] == "0" and re.fullmatch(r"[xXob][0-9a-fA-F_]+", word) is not None


def _unknown(source: Source, start: int, end: int) -> Diagnostic:
    text = source.text[start:end]
    plain = text if text.isascii() else plain_word(text)
    return slips.unknown_unit(Span(source.name, start, end), text, plain or text)
