"""Units: what each is, what a number means where something is wanted, and back to text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parlay.dsl.nearest import nearest
from parlay.dsl.parse import parse
from parlay.dsl.source import Source
from parlay.dsl.syntax import Binary, Block, Expr, Field, Group, Number, Unary
from parlay.dsl.units import (
    UNITS,
    Ambiguous,
    Dimension,
    Mismatch,
    Quantity,
    UnknownUnit,
    literal,
    quantity,
    show,
    units_of,
)

K, KI = 1000, 1024
TABLE = {
    **{("count", unit): Fraction(factor) for unit, factor in (("", 1), ("k", K), ("M", K**2))},
    **{("count", unit): Fraction(factor) for unit, factor in (("B", K**3), ("T", K**4))},
    **{("count", unit): Fraction(KI**n) for n, unit in enumerate(("Ki", "Mi", "Gi"), 1)},
    **{("data", unit): Fraction(K**n) for n, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{("data", f"{p}iB"): Fraction(KI**n) for n, p in enumerate("KMGT", 1)},
    ("rate", "Gb/s"): Fraction(125_000_000),
    ("rate", "GB/s"): Fraction(K**3),
    ("rate", "TB/s"): Fraction(K**4),
    ("rate", "GiB/s"): Fraction(KI**3),
    **{("compute", f"{p}FLOP/s"): Fraction(K**n) for n, p in enumerate("GTP", 3)},
    ("time", "ns"): Fraction(1, K**3),
    ("time", "us"): Fraction(1, K**2),
    ("time", "ms"): Fraction(1, K),
    ("time", "s"): Fraction(1),
    ("time", "min"): Fraction(60),
    ("time", "h"): Fraction(3600),
    ("time", "d"): Fraction(86400),
    ("share", "%"): Fraction(1, 100),
    ("money", "$/h"): Fraction(1),
}


def expression(text: str) -> Expr:
    tree, diagnostics = parse(Source("run.par", f"b {{ f = {text} }}"))
    assert diagnostics == (), text
    (block,) = tree.statements
    assert isinstance(block, Block) and block.body is not None
    (field,) = block.body
    assert isinstance(field, Field)
    return field.value


def number(text: str) -> Number:
    value = expression(text)
    assert isinstance(value, Number)
    return value


def test_the_table_is_that_of_the_language() -> None:
    found = {
        (str(dimension), unit): factor
        for unit, readings in UNITS.items()
        for dimension, factor in readings
    }
    assert found == TABLE


@pytest.mark.parametrize(("dimension", "unit"), list(TABLE))
def test_every_unit_is_one_word_and_exact(dimension: str, unit: str) -> None:
    wanted = Dimension(dimension)
    found = quantity(number(f"1.7{unit}"), wanted)
    assert found == Quantity(Fraction(17, 10) * TABLE[dimension, unit], wanted)


def test_b_is_bytes_or_a_billion_as_the_field_wants() -> None:
    seven = number("7B")
    assert quantity(seven, Dimension.DATA) == Quantity(Fraction(7), Dimension.DATA)
    assert quantity(seven, Dimension.COUNT) == Quantity(Fraction(7 * 10**9), Dimension.COUNT)
    found = quantity(seven, None)
    assert isinstance(found, Ambiguous)
    assert {reading.dimension for reading in found.readings} == {Dimension.DATA, Dimension.COUNT}
    assert quantity(seven, Dimension.TIME) == Mismatch(Dimension.DATA, Dimension.TIME)


def test_other_dimensions_are_told_apart() -> None:
    assert quantity(number("8GB"), Dimension.COUNT) == Mismatch(Dimension.DATA, Dimension.COUNT)
    assert quantity(number("8"), Dimension.DATA) == Mismatch(Dimension.COUNT, Dimension.DATA)
    assert quantity(number("8GB"), Dimension.RATE) == Mismatch(Dimension.DATA, Dimension.RATE)
    assert quantity(number("8GB"), None) == Quantity(Fraction(8 * 10**9), Dimension.DATA)
    assert quantity(number("0.9"), Dimension.SHARE) == Quantity(Fraction(9, 10), Dimension.SHARE)
    assert quantity(number("90%"), Dimension.COUNT) == Mismatch(Dimension.SHARE, Dimension.COUNT)
    odd = Number(Fraction(1), "furlong", "1furlong", number("1").span)
    assert quantity(odd, None) == UnknownUnit("furlong")


def test_units_by_size() -> None:
    assert units_of(Dimension.TIME) == ("ns", "us", "ms", "s", "min", "h", "d")
    assert "" not in units_of(Dimension.COUNT)


@pytest.mark.parametrize(
    ("value", "dimension", "shown"),
    [
        (Fraction(612, 10) * 10**9, "data", "61.2 GB"),
        (85_520_809_984, "data", "85.5 GB"),
        (0, "data", "0 B"),
        (512, "data", "512 B"),
        (999_999_999, "data", "1 GB"),
        (999_400_000, "data", "999 MB"),
        (5 * 10**15, "data", "5,000 TB"),
        (50 * 10**9, "rate", "400 Gb/s"),
        (450 * 10**9, "rate", "450 GB/s"),
        (3350 * 10**9, "rate", "3.35 TB/s"),
        (10**6, "rate", "0.001 GB/s"),
        (989 * 10**12, "compute", "989 TFLOP/s"),
        (Fraction(1234, 1000), "time", "1.23 s"),
        (Fraction(5, 10**6), "time", "5 us"),
        (90, "time", "1.5 min"),
        (86400 * 90, "time", "90 d"),
        (Fraction(1, 8), "share", "12.5%"),
        (Fraction(932, 1000), "share", "93.2%"),
        (0, "share", "0%"),
        (Fraction(5, 2), "money", "2.5 $/h"),
        (8192, "count", "8Ki"),
        (131072, "count", "128Ki"),
        (2**20, "count", "1Mi"),
        (57_344, "count", "56Ki"),
        (12_345, "count", "12,345"),
        (8, "count", "8"),
        (70_553_706_496, "count", "70.6B"),
        (15_600_000_000_000, "count", "15.6T"),
        (Fraction(1, 3), "count", "0.333"),
        (Fraction(3, 10**4), "count", "0.0003"),
        (Fraction(3, 10**12), "count", "3e-12"),
        (-8192, "count", "-8Ki"),
    ],
)
def test_shown_for_people(value: Fraction | int, dimension: str, shown: str) -> None:
    assert show(value, Dimension(dimension)) == shown


def test_shown_in_the_unit_asked_for() -> None:
    assert show(50 * 10**9, Dimension.RATE, "GB/s") == "50 GB/s"
    assert show(85_520_809_984, Dimension.DATA, "MiB") == "81,559 MiB"


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (8, "count", "8"),
        (8192, "count", "8192"),
        (32768, "count", "32Ki"),
        (15_600_000_000_000, "count", "15.6T"),
        (7 * 10**9, "count", "7000M"),
        (Fraction(3, 10**4), "count", "0.0003"),
        (Fraction(1, 3), "count", "1 / 3"),
        (-2, "count", "-2"),
        (Fraction(-1, 3), "count", "-(1 / 3)"),
        (80 * 10**9, "data", "80GB"),
        (81_559 * 2**20, "data", "81559MiB"),
        (100, "data", "0.1kB"),
        (50 * 10**9, "rate", "50GB/s"),
        (Fraction(9, 10), "share", "90%"),
        (3600, "time", "1h"),
        (Fraction(5, 2), "money", "2.5$/h"),
    ],
)
def test_written_as_source(value: Fraction | int, dimension: str, text: str) -> None:
    assert literal(value, Dimension(dimension)) == text


def worth(node: Expr, dimension: Dimension) -> Fraction:
    """The value of what `literal` writes: one quantity, perhaps divided, scaled or negated."""
    match node:
        case Number():
            for wanted in (dimension, None):
                found = quantity(node, wanted)
                if isinstance(found, Quantity):
                    assert found.dimension in (dimension, Dimension.COUNT)
                    return found.value
            raise AssertionError(found)
        case Unary():
            return -worth(node.operand, dimension)
        case Group():
            return worth(node.inner, dimension)
        case Binary():
            left, right = worth(node.left, dimension), worth(node.right, dimension)
            match node.operator:
                case "/":
                    return left / right
                case "*":
                    return left * right
                case "+":
                    return left + right
    raise AssertionError(node)


@given(
    st.one_of(
        st.fractions(),
        st.integers(-(10**45), 10**45).map(Fraction),
        st.fractions(min_value=0, max_denominator=10**6),
    ),
    st.sampled_from(list(Dimension)),
)
def test_source_text_reads_back_as_the_same_value(value: Fraction, dimension: Dimension) -> None:
    text = literal(value, dimension)
    assert worth(expression(text), dimension) == value
    show(value, dimension)


def test_nearest_names() -> None:
    names = ["layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"]
    assert nearest("layer", names) == ["layers"]
    assert nearest("Hidden", names) == ["hidden"]
    assert nearest("hidedn", names) == ["hidden"]
    assert nearest("head", names)[0] == "heads"
    assert nearest("zzz", names) == []
    assert nearest("", names) == []
    assert nearest("tp", ["pp", "cp", "dp", "ep", "tp"]) == ["pp", "cp", "dp"]
    assert nearest("true", ["on", "off"]) == []


def test_nearest_is_capped() -> None:
    assert nearest("x" * 10_000, ["x" * 10_000]) == []
    assert nearest("layers", ["y" * 10_000, "layer"]) == ["layer"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(1, 3), "1 / 3"),
        (Fraction(10**45 + 1), "(1000000000000000 * 1e30 + 1)"),
        (Fraction(1, 10**45 + 1), "1 / (1000000000000000 * 1e30 + 1)"),
    ],
)
def test_numbers_beyond_a_token(value: Fraction, text: str) -> None:
    assert literal(value, Dimension.COUNT) == text
