"""From measured points to the figures of a `cluster.calibration` block.

A call takes its steps times a latency, and its bytes over a bandwidth; the steps are those that the
time model counts (`ledger/time/collectives.py`), so that it gives back what was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log2
from typing import Any, Final

from parlay.compiler.commands.calibrate_logs import Point, largest, smallest

KNOWN: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def calibration(document: Mapping[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    """The block's fields by name, in base units; what was not measured is not there."""
    found: dict[str, Any] = {}
    if document.get("name"):
        found["device"] = document["name"]
    for field, dtype in DTYPES.items():
        rows = [row for row in document.get("matmul", ()) if row["dtype"] == dtype]
        if rows:
            row = max(rows, key=lambda row: row["m"])
            found[field] = {"rate": row["flops_per_s"], "size": row["m"]}
    if document.get("copy"):
        found["copy"] = max(document["copy"], key=lambda row: row["bytes"])["bytes_per_s"]
    copies = {copy["test"]: copy["bytes_per_s"] for copy in document.get("copies", ())}
    if "device_local_copy" in copies:
        # nvbandwidth counts what is copied, once; memory reads it and writes it.
        found["copy"] = 2 * copies["device_local_copy"]
    for test in ("host_to_device_memcpy_sm", "host_to_device_memcpy_ce"):
        if test in copies:
            found["host"] = copies[test]
    for wire, names in _by_wire(points).items():
        found[wire] = {"ranks": max(each[0].ranks or 2 for each in names.values())}
        found[wire] |= {name: _call(each) for name, each in names.items()}
    return found


def unused(points: Sequence[Point]) -> list[str]:
    """What of the points no figure is made of, and why."""
    found = []
    if any(point.ranks is None for point in points):
        found.append("logs without `#  Rank` lines, which do not say how many ranks they ran on")
    if any(point.ranks == 1 for point in points):
        found.append("tests of one rank")
    others = sorted({point.collective for point in points} - set(KNOWN))
    if others:
        found.append(f"{', '.join(others)}, which the step is not priced by")
    return found


def doubtful(points: Sequence[Point]) -> list[str]:
    """What of the calibration is of starts rather than of a wire: messages that ended too small."""
    found = []
    for wire, names in _by_wire(points).items():
        for name, each in names.items():
            last = max(each, key=lambda point: point.bytes)
            first = min(each, key=lambda point: point.bytes)
            if first.bytes < last.bytes and last.seconds < 2 * first.seconds:
                found.append(
                    f"{wire}.{name}: {last.bytes:,} B take less than twice as long as "
                    f"{first.bytes:,} B, so its bandwidth is of starts; measure larger messages"
                )
    return found


def _by_wire(points: Sequence[Point]) -> dict[str, dict[str, list[Point]]]:
    """`link` or `fabric` -> collective -> the points of the most ranks that took part."""
    found: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.collective in KNOWN and point.ranks is not None and point.ranks > 1:
            wire = "fabric" if (point.nodes or 1) > 1 else "link"
            found[wire][point.collective].append(point)
    return {
        wire: {name: list(_of_most(each)) for name, each in names.items()}
        for wire, names in sorted(found.items(), reverse=True)
    }


def _of_most(points: Sequence[Point]) -> Iterator[Point]:
    most = max((point.ranks or 0, point.nodes or 0) for point in points)
    yield from (point for point in points if (point.ranks or 0, point.nodes or 0) == most)


def _call(points: Sequence[Point]) -> dict[str, float]:
    """Bandwidth and latency of one collective: of the largest and of the smallest messages.

    Between nodes a ring enters a node by all of its ranks' cards, so that one GPU's part is the
    bus's over the ranks of a node; of an all-to-all only what is for other nodes takes the cards.
    """
    first = points[0]
    ranks, nodes = first.ranks or 2, first.nodes or 1
    bandwidth, inside = largest(points), ranks / nodes
    if nodes > 1 and first.collective == "all_to_all":
        bandwidth *= 1 - (inside - 1) / (ranks - 1)
    elif nodes > 1 and first.collective != "send":
        bandwidth /= inside
    return {"bandwidth": bandwidth, "latency": smallest(points) / _steps(first.collective, ranks)}


def _steps(collective: str, ranks: int) -> float:
    match collective:
        case "all_reduce":
            return min(2.0 * (ranks - 1), 4 * log2(ranks))
        case "all_to_all":
            return log2(ranks)
        case "send":
            return 1.0
    return ranks - 1.0
