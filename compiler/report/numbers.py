"""Figures as people read them: three significant digits with a unit, whole counts exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log10
from typing import Final

Show = Callable[[float], str]

BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
PARTS: Final = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
LARGE: Final = (("", 1.0), ("K", 1e3), ("M", 1e6), ("B", 1e9), ("T", 1e12))


def digits(number: float) -> str:
    """Three significant digits; from 1,000 on whole: `0.0312`, `27.7`, `1,234`."""
    if not number:
        return "0"
    places = max(0, 2 - floor(log10(abs(number))))
    rounded = round(number, places)
    # 9.996 rounds to 10.00, which has a digit too many.
    places = max(0, 2 - floor(log10(abs(rounded)))) if rounded else places
    return f"{rounded:,.{places}f}"


def data(number: float) -> str:
    """Bytes: `27.7 GiB`."""
    size = 0
    while abs(number) >= 999.5 and size < len(BYTES) - 1:
        number, size = number / 1024, size + 1
    return f"{digits(number)} {BYTES[size]}"


def seconds(number: float) -> str:
    """`223 s`, `1.24 ms`, `31.0 µs`."""
    unit, size = next((each for each in PARTS if abs(number) >= each[1]), PARTS[-1])
    return f"{digits(number / size)} {unit if number else 's'}"


def share(number: float) -> str:
    """`28.6%`."""
    return f"{digits(100 * number)}%"


def count(number: float) -> str:
    """`16,384`; what is no whole number has three digits."""
    return f"{int(number):,}" if number == int(number) else digits(number)


def short(number: float) -> str:
    """Counts of many: `70.6B`."""
    unit, size = next((each for each in reversed(LARGE) if abs(number) >= each[1]), LARGE[0])
    return f"{digits(number / size)}{unit}"


def money(number: float) -> str:
    """`$1,234`."""
    return f"${number:,.0f}"


def plain(number: float) -> str:
    """The number alone."""
    return digits(number)


def runs(numbers: Sequence[int]) -> str:
    """Ascending numbers in few words: `0-3, 5`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found)
