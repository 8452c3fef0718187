"""Facts to sentences: numbers, lists, products and remainders as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from parlay.dsl.units import Dimension, show


def counted(number: int, one: str, many: str = "") -> str:
    """`no stages`, `1 stage`, `6 stages`; `many` where an s does not make the plural."""
    if number == 1:
        return f"1 {one}"
    return f"{number or 'no'} {many or one + 's'}"


def listed(items: Iterable[object], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    words = [str(item) for item in items]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def leaves(whole: int, part: int) -> str:
    """`6 / 8 leaves 6`."""
    return f"{whole} / {part} leaves {whole % part}"


def product(names: Sequence[str], values: Sequence[int], total: int | None = None) -> str:
    """`tp · pp = 8 · 4 = 32`; `total` replaces the product of the values."""
    result = 1
    for value in values:
        result *= value
    result = result if total is None else total
    if len(names) == 1:
        return f"{names[0]} = {result}"
    return f"{' · '.join(names)} = {' · '.join(map(str, values))} = {result}"


def memory(number: float) -> str:
    """`61.2 GB`."""
    return show(Fraction(number), Dimension.DATA)


def memories(first: float, second: float) -> tuple[str, str]:
    """Both as `memory` shows them, with more digits where they differ and would read the same."""
    shown = memory(first), memory(second)
    digits = 1
    while first != second and shown[0] == shown[1] and digits < 10:
        shown = f"{first / 1e9:.{digits}f} GB", f"{second / 1e9:.{digits}f} GB"
        digits += 1
    return shown


def speed(bytes_per_s: float) -> str:
    """`450 GB/s`, `400 Gb/s` where that is a network card's usual speed."""
    return show(Fraction(bytes_per_s), Dimension.RATE)


def percent(share: float) -> str:
    """`27.3%`."""
    return show(Fraction(share), Dimension.SHARE)


def real(number: float) -> str:
    """`0.003`, `3e-5`: a rate as a person writes it."""
    return f"{number:g}".replace("e-0", "e-")


def ranks(axis: str, size: int) -> str:
    """`8 TP ranks`, `4 pipeline ranks`, `2 replicas`."""
    one = {"pp": "pipeline rank", "dp": "replica"}.get(axis, f"{axis.upper()} rank")
    return counted(size, one)


def near(value: int, multiple: int, *, least: int = 1) -> tuple[int, ...]:
    """The nearest multiples of `multiple` below and above `value`, from `least` on.

    `near(1000, 16)` --> `(992, 1008)`
    """
    below = value // multiple * multiple
    found = [below, below + multiple] if below != value else [below]
    return tuple(number for number in found if number >= max(least, 1))


def divisors(number: int) -> list[int]:
    """Every divisor, ascending."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def nearest(wanted: int, choices: Iterable[int], limit: int = 3) -> list[int]:
    """At most `limit` of `choices`, those closest to `wanted` by ratio, ascending."""
    ranked = sorted(choices, key=lambda choice: (max(choice, wanted) / min(choice, wanted), choice))
    return sorted(ranked[:limit])
