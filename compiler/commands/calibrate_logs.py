"""Reading the logs of nccl-tests and nvbandwidth.

nccl-tests prints a line a size: bytes, elements, type, operation, root, then for out of place and
in place the microseconds, the algorithm's and the bus bandwidth in GB/s, and the errors. Its header
names the collective (`# Collective test starting: all_reduce_perf`) or the file's name does, and a
line for each rank (`#  Rank  0 …`). nvbandwidth prints a matrix for each test and
`SUM host_to_device_memcpy_ce 211.5`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 1}


@dataclass(frozen=True, slots=True)
class Point:
    """One size of one collective: message bytes, seconds, and bytes/s over the slowest wire."""

    collective: str
    ranks: int | None
    bytes: int
    seconds: float
    bus_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Copy:
    """A test of nvbandwidth: the mean over its pairs, bytes/s."""

    test: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Wire:
    """What α + bytes / B fits: seconds a call, bytes/s of the bus at large sizes."""

    latency_s: float
    bandwidth_bytes_per_s: float


def nccl(text: str, *, name: str = "") -> list[Point]:
    """The points of an nccl-tests log; `name` is the file's, in case the log does not say."""
    collective = _collective(text) or _collective(name) or "all_reduce"
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", text, re.MULTILINE)) or None
    points = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].isdigit() or not words[1].isdigit():
            continue
        numbers = [word for word in words[2:] if re.fullmatch(r"-?\d+(\.\d+)?", word)]
        if len(numbers) < 4:
            continue
        # root (-1 where there is none) comes first, where the version prints it.
        first = 1 if "." not in numbers[0] and float(numbers[0]) <= 0 else 0
        micro, bus = float(numbers[first]), float(numbers[first + 2])
        if micro > 0 and int(words[0]) > 0:
            points.append(Point(collective, ranks, int(words[0]), micro * 1e-6, bus * 1e9))
    return points


def nvbandwidth(text: str) -> list[Copy]:
    """The tests of an nvbandwidth log: the mean of each matrix, or its printed sum."""
    found = []
    for block in re.split(r"^Running ", text, flags=re.MULTILINE)[1:]:
        test = block.split(None, 1)[0].rstrip(".")
        values = []
        for line in block.splitlines():
            words = line.split()
            if len(words) > 1 and words[0].isdigit() and "." in line:
                values += [float(w) for w in words[1:] if re.fullmatch(r"\d+\.\d+", w)]
        if not values and (total := re.search(rf"SUM {re.escape(test)}\s+(\d+\.\d+)", block)):
            values = [float(total[1])]
        if values:
            found.append(Copy(test, sum(values) / len(values) * 1e9))
    return found


def _collective(text: str) -> str | None:
    lower = text.lower().replace("-", "_")
    return next((name for name in NAMES if f"{name}_perf" in lower or name in lower), None)


def wire(points: Sequence[Point]) -> Wire | None:
    """Latency from the smallest message, bandwidth from the largest; None without points."""
    if not points:
        return None
    ordered = sorted(points, key=lambda point: point.bytes)
    best = max(point.bus_bytes_per_s for point in ordered[-3:])
    return Wire(ordered[0].seconds, best)


def bus(collective: str, ranks: int, size: int, seconds: float) -> float:
    """Bytes/s over the slowest wire, as nccl-tests counts them: the part that has to cross it."""
    return ROUNDS[collective] * (ranks - 1) / ranks * size / seconds
