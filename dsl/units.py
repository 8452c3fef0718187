"""Units and the quantities they make: exact in, exact out.

`quantity` reads a number token for a wanted dimension; `show` writes a value for people (rounded),
`literal` writes it as source text that reads back as the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from parlay.dsl.syntax import Number


class Dimension(StrEnum):
    """What a value measures; each is held in one base unit."""

    COUNT = "count"
    """A pure number."""
    DATA = "data"
    """Bytes."""
    RATE = "rate"
    """Bytes a second, one direction."""
    COMPUTE = "compute"
    """Dense floating-point operations a second."""
    TIME = "time"
    """Seconds."""
    SHARE = "share"
    """A part of one."""
    MONEY = "money"
    """Dollars an hour."""


_BY_DIMENSION: dict[Dimension, dict[str, Fraction]] = {
    Dimension.COUNT: {
        "": Fraction(1),
        "k": Fraction(10**3),
        "M": Fraction(10**6),
        "B": Fraction(10**9),
        "T": Fraction(10**12),
        "Ki": Fraction(2**10),
        "Mi": Fraction(2**20),
        "Gi": Fraction(2**30),
    },
    Dimension.DATA: {
        "B": Fraction(1),
        "kB": Fraction(10**3),
        "MB": Fraction(10**6),
        "GB": Fraction(10**9),
        "TB": Fraction(10**12),
        "KiB": Fraction(2**10),
        "MiB": Fraction(2**20),
        "GiB": Fraction(2**30),
        "TiB": Fraction(2**40),
    },
    Dimension.RATE: {
        "Gb/s": Fraction(10**9, 8),
        "GB/s": Fraction(10**9),
        "TB/s": Fraction(10**12),
        "GiB/s": Fraction(2**30),
    },
    Dimension.COMPUTE: {
        "GFLOP/s": Fraction(10**9),
        "TFLOP/s": Fraction(10**12),
        "PFLOP/s": Fraction(10**15),
    },
    Dimension.TIME: {
        "ns": Fraction(1, 10**9),
        "us": Fraction(1, 10**6),
        "ms": Fraction(1, 10**3),
        "s": Fraction(1),
        "min": Fraction(60),
        "h": Fraction(3600),
        "d": Fraction(86400),
    },
    Dimension.SHARE: {"%": Fraction(1, 100)},
    Dimension.MONEY: {"$/h": Fraction(1)},
}

AMBIGUOUS = "B"
"""The one unit of two dimensions: bytes, or 10^9."""

UNITS: dict[str, tuple[tuple[Dimension, Fraction], ...]] = {}
"""Unit -> what it may mean: one `(dimension, factor)`, for `B` two; `""` is the bare number."""
for _dimension, _units in _BY_DIMENSION.items():
    for _unit, _factor in _units.items():
        UNITS[_unit] = (*UNITS.get(_unit, ()), (_dimension, _factor))


def units_of(dimension: Dimension) -> tuple[str, ...]:
    """The units of a dimension, smallest first, without the bare number."""
    table = _BY_DIMENSION[dimension]
    return tuple(sorted((unit for unit in table if unit), key=table.__getitem__))


# ── Reading ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact value in the base unit of its dimension."""

    value: Fraction
    dimension: Dimension


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The number measures `found` where `wanted` is needed."""

    found: Dimension
    wanted: Dimension


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """No dimension is wanted and the unit has several: `readings` holds each."""

    readings: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class UnknownUnit:
    """No such unit; the parser has told it already (P022)."""

    unit: str


UnitProblem = Mismatch | Ambiguous | UnknownUnit


def quantity(number: Number, wanted: Dimension | None) -> Quantity | UnitProblem:
    """What `number` measures where `wanted` is needed (None: nothing says what is needed).

    - `7B` is bytes where data is wanted and 10^9 where a count is; with `wanted` None it is
      `Ambiguous`.
    - A bare number is a count; where a share is wanted it is that share (0.9 is 90%).
    - Every other disagreement is a `Mismatch`.
    """
    readings = UNITS.get(number.unit)
    if readings is None:
        return UnknownUnit(number.unit)
    found = tuple(Quantity(number.value * factor, dimension) for dimension, factor in readings)
    if wanted is None:
        return found[0] if len(found) == 1 else Ambiguous(found)
    for reading in found:
        if reading.dimension is wanted:
            return reading
    if wanted is Dimension.SHARE and not number.unit:
        return Quantity(number.value, wanted)
    return Mismatch(found[-1].dimension, wanted)


# ── Writing for people ────────────────────────────────────────────────────────

_SHOWN: dict[Dimension, tuple[str, ...]] = {
    Dimension.DATA: ("B", "kB", "MB", "GB", "TB"),
    Dimension.COMPUTE: ("GFLOP/s", "TFLOP/s", "PFLOP/s"),
    Dimension.TIME: ("ns", "us", "ms", "s", "min", "h", "d"),
    Dimension.RATE: ("GB/s", "TB/s"),
    Dimension.SHARE: ("%",),
    Dimension.MONEY: ("$/h",),
}
_NIC_SPEEDS = frozenset({10, 25, 40, 50, 100, 200, 400, 800, 1600})


@lru_cache(maxsize=4096)
def show(value: Fraction | int, dimension: Dimension, unit: str | None = None) -> str:
    """`value` for people, to three significant digits: `61.2 GB`, `400 Gb/s`, `8Ki`, `12.5%`.

    Whole counts below a million stay exact (`57,344`; round binary ones as `8Ki`). A rate that is
    a network card's usual speed is told in bits. `unit` asks for one unit of the dimension.
    """
    value = Fraction(value)
    if value < 0:
        return "-" + show(-value, dimension, unit)
    if unit is None:
        if dimension is Dimension.COUNT:
            return _show_count(value)
        unit = _fitting(value, dimension)
    number = _three_digits(value / _BY_DIMENSION[dimension][unit])
    space = "" if unit == "%" or dimension is Dimension.COUNT else " "
    return f"{number}{space}{unit}"


def _fitting(value: Fraction, dimension: Dimension) -> str:
    """The largest unit that leaves at least 1 once rounded, else the smallest."""
    if dimension is Dimension.RATE and value * 8 / 10**9 in _NIC_SPEEDS:
        return "Gb/s"
    table = _BY_DIMENSION[dimension]
    for unit in reversed(_SHOWN[dimension]):
        # 999.6 MB rounds to 1,000 MB, which people write 1 GB.
        if value >= table[unit] * Fraction(9995, 10000):
            return unit
    return _SHOWN[dimension][0]


def _show_count(value: Fraction) -> str:
    if value.denominator == 1:
        for unit, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if value % factor == 0 and factor <= value < factor * 1024:
                return f"{value // factor}{unit}"
        if value < 10**6:
            return f"{value.numerator:,}"
    for unit in ("T", "B", "M"):
        factor = UNITS[unit][0][1].numerator
        if value >= factor * Fraction(9995, 10000):
            return _three_digits(value / factor) + unit
    return _three_digits(value)


def _three_digits(value: Fraction) -> str:
    """Three significant digits without trailing zeros; whole numbers from 100 on in full."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{round(value):,}"
    digits = 2
    # Three significant digits of 0.000123 need six places.
    scale = value
    while scale < 1 and digits < 40:
        scale *= 10
        digits += 1
    if digits > 8:
        power = digits - 2
        return f"{_decimal(round(value * 10**power, 2))}e-{power}"
    if value >= 10:
        digits = 1
    return _decimal(round(value, digits))


# ── Writing as source ─────────────────────────────────────────────────────────

_DIGITS = 40


def literal(value: Fraction | int, dimension: Dimension) -> str:
    """Source text that reads back as exactly `value` wherever `dimension` is wanted, or nothing is.

    The shortest number token is taken (`32Ki`, `15.6T`, `50GB/s`); never the ambiguous `B`. Counts
    below 10,000 stay bare. A value with no finite decimals becomes a division (`1 / 3`), a
    negative one gets a minus.
    """
    value = Fraction(value)
    if value < 0:
        text = literal(-value, dimension)
        return f"-({text})" if " " in text else "-" + text
    table = _BY_DIMENSION[dimension]
    if dimension is Dimension.COUNT and value < 10_000 and value.denominator == 1:
        return str(value.numerator)
    tokens = [
        number + unit
        for unit, factor in table.items()
        if unit != AMBIGUOUS and (number := _finite(value / factor)) is not None
    ]
    if tokens:
        return min(tokens, key=len)
    if value.denominator > 1:
        numerator = literal(Fraction(value.numerator), dimension)
        return f"{numerator} / {_whole(value.denominator)}"
    return _whole(value.numerator)


def _whole(value: int) -> str:
    """A whole number; one beyond a token's digits as a sum of shorter ones, in parentheses."""
    limit = 10**_DIGITS
    if value < limit:
        return str(value)
    high, low = divmod(value, 10**30)
    return f"({_whole(high)} * 1e30 + {low})"


def _finite(value: Fraction) -> str | None:
    """The shortest finite decimal within the digits of a number token, else None."""
    rest = value.denominator
    places = 0
    while rest % 10 == 0:
        rest //= 10
        places += 1
    while rest % 5 == 0:
        rest //= 5
        places += 1
    while rest % 2 == 0:
        rest //= 2
        places += 1
    if rest != 1 or places > _DIGITS or value >= 10**_DIGITS:
        return None
    text = _decimal(value)
    if len(text.replace(".", "")) > _DIGITS:
        return None
    return text


def _decimal(value: Fraction) -> str:
    """All decimals of a value that has finitely many."""
    places = 0
    while value.denominator != 1 and (value * 10**places).denominator != 1:
        places += 1
    if places == 0:
        return str(value.numerator)
    digits = str((value * 10**places).numerator).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"
