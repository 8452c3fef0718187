"""Numbers, lists and products as sentences have them."""

from __future__ import annotations

import pytest
from parlay.compiler.checks import words


@pytest.mark.parametrize(
    ("number", "many", "said"),
    [
        (0, "", "no stages"),
        (1, "", "1 stage"),
        (2, "", "2 stages"),
        (0, "stagings", "no stagings"),
        (1, "stagings", "1 stage"),
        (3, "stagings", "3 stagings"),
    ],
)
def test_counted(number: int, many: str, said: str) -> None:
    assert words.counted(number, "stage", many) == said


def test_listed() -> None:
    assert words.listed([]) == ""
    assert words.listed([4]) == "4"
    assert words.listed([4, "b"]) == "4 and b"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(["a", "b", "c"], "or") == "a, b or c"


def test_leaves() -> None:
    assert words.leaves(6, 8) == "6 / 8 leaves 6"
    assert words.leaves(16, 6) == "16 / 6 leaves 4"


def test_product() -> None:
    assert words.product(["tp"], [8]) == "tp = 8"
    assert words.product(["tp", "pp"], [8, 4]) == "tp · pp = 8 · 4 = 32"
    assert words.product(["tp", "pp", "dp"], [8, 4, 3]) == "tp · pp · dp = 8 · 4 · 3 = 96"
    assert words.product(["tp", "pp"], [8, 4], 7) == "tp · pp = 8 · 4 = 7"
    assert words.product(["tp", "pp"], [8, 4], 0) == "tp · pp = 8 · 4 = 0"
    assert words.product(["tp"], [8], 7) == "tp = 7"


def test_memory() -> None:
    assert words.memory(61.2e9) == "61.2 GB"
    assert words.percent(0.273) == "27.3%"
    assert words.speed(450e9) == "450 GB/s"
    assert words.speed(50e9) == "400 Gb/s"


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        (90e9, 80e9, ("90 GB", "80 GB")),
        (141.2e9, 141.0e9, ("141.2 GB", "141.0 GB")),
        (141.02e9, 141.01e9, ("141.02 GB", "141.01 GB")),
        (85e9, 85e9, ("85 GB", "85 GB")),
        # Nine digits are bytes; what differs by less reads the same.
        (85e9, 85e9 + 1, ("85.000000000 GB", "85.000000001 GB")),
        (85e9, 85e9 + 0.25, ("85.000000000 GB", "85.000000000 GB")),
    ],
)
def test_memories(first: float, second: float, shown: tuple[str, str]) -> None:
    assert words.memories(first, second) == shown


@pytest.mark.parametrize(
    ("axis", "size", "said"),
    [
        ("tp", 8, "8 TP ranks"),
        ("cp", 1, "1 CP rank"),
        ("pp", 4, "4 pipeline ranks"),
        ("pp", 1, "1 pipeline rank"),
        ("dp", 2, "2 replicas"),
        ("dp", 1, "1 replica"),
    ],
)
def test_ranks(axis: str, size: int, said: str) -> None:
    assert words.ranks(axis, size) == said


@pytest.mark.parametrize(
    ("value", "multiple", "least", "found"),
    [
        (1000, 16, 1, (992, 1008)),
        (992, 16, 1, (992,)),
        (7, 16, 1, (16,)),
        (1000, 16, 992, (992, 1008)),
        (1000, 16, 993, (1008,)),
        (1000, 16, 1009, ()),
        (0, 1, 0, ()),
        (1, 1, 1, (1,)),
        (1, 2, -5, (2,)),
        (3, 2, 2, (2, 4)),
    ],
)
def test_near(value: int, multiple: int, least: int, found: tuple[int, ...]) -> None:
    assert words.near(value, multiple, least=least) == found


def test_near_starts_at_one() -> None:
    assert words.near(0, 16) == ()
    assert words.near(1, 1) == (1,)


def test_divisors() -> None:
    for number in (1, 2, 3, 4, 12, 16, 36, 37, 97, 100, 840):
        assert words.divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


@pytest.mark.parametrize(
    ("wanted", "choices", "limit", "found"),
    [
        (10, [64, 96, 128], 1, [64]),
        (100, [64, 96, 128], 1, [96]),
        (100, [64, 96, 128], 2, [96, 128]),
        # 8 is as far from 4 as from 16: the smaller one.
        (8, [4, 16], 1, [4]),
        (8, [16, 4, 8], 2, [4, 8]),
        (8, [], 3, []),
    ],
)
def test_nearest(wanted: int, choices: list[int], limit: int, found: list[int]) -> None:
    assert words.nearest(wanted, choices, limit) == found


def test_nearest_gives_three() -> None:
    assert words.nearest(8, [1, 2, 4, 8, 16]) == [4, 8, 16]
