"""Reading what nccl-tests and nvbandwidth print, as text and as JSON.

nccl-tests prints a line a size under a header of its columns (`# size count type redop root time
algbw busbw #wrong …`), first out of place, then in place; which columns there are depends on the
version and on the test, so they are found by the header. Its collective stands in `# Collective
test starting: all_reduce_perf`, in the command line that a log may begin with, or in the file's
name; its ranks are `#  Rank  0 … on HOST device …`. Launchers and log collectors put a tag of their
own before each line. nvbandwidth prints a matrix for each test, with
its unit above it. Both write JSON too (`-J`, `--json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

ROUNDS: Final = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
NAMES: Final = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoallv": "all_to_all_v",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "sendrecv": "send",
    "send_recv": "send",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "gather": "gather",
    "hypercube": "hypercube",
}
"""nccl-tests' programs without `_perf`, and what they measure; longer names first."""
MOST_POINTS: Final = 100_000
SLOWEST_S: Final = 3600.0
FASTEST: Final = 1e15
"""Bytes/s that no wire of today comes near."""

_PROGRAM: Final = re.compile(rf"(?<![a-z])({'|'.join(NAMES)})_perf")
_NAMED: Final = re.compile(rf"(?<![a-z])({'|'.join(NAMES)})(?![a-z])")
_HEAD: Final = re.compile(r"(?:^|\s)(size\s+count\s.*)")
_ROW: Final = re.compile(r"(?:^|\s|:)(\d+\s+\d+\s+[a-z]\w*\s.*)")
_RANK: Final = re.compile(r"#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_TIMES: Final = ("time", "cputime")


@dataclass(frozen=True, slots=True)
class Point:
    """One size of one collective: message bytes, seconds, and bytes/s over the slowest wire.

    `ranks` and `nodes` are those that took part, None where the log does not list them.
    """

    collective: str
    ranks: int | None
    bytes: int
    seconds: float
    bus_bytes_per_s: float
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A test of nvbandwidth: the mean over its pairs, bytes/s."""

    test: str
    bytes_per_s: float


@dataclass(slots=True)
class Log:
    """What a log holds; `device` as its driver calls it, `faults` what of it cannot be used."""

    points: list[Point] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    device: str | None = None
    faults: list[str] = field(default_factory=list)


def read(text: str, *, name: str = "") -> Log:
    """Everything in a log; `name` is the file's, in case the log does not say the collective."""
    log = Log()
    if text.lstrip().startswith("{"):
        _json(text, log, name)
    else:
        _nccl(text, log, name)
        log.copies = list(_nvbandwidth(text))
    if len(log.points) > MOST_POINTS:
        log.faults.append(f"it has more than {MOST_POINTS} sizes")
    return log


# ── nccl-tests ────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Test:
    """The test that the lines belong to."""

    collective: str | None = None
    columns: list[str] = field(default_factory=list)
    ranks: dict[int, str] = field(default_factory=dict)  # rank -> host

    def took_part(self) -> tuple[int | None, int | None]:
        """Ranks and nodes, None where no line lists them."""
        return len(self.ranks) or None, len(set(self.ranks.values())) or None


def _nccl(text: str, log: Log, name: str) -> None:
    test = _Test(_program(name, _NAMED))
    nameless = 0
    for line in text.splitlines():
        if (program := _program(line, _PROGRAM)) is not None:
            if program != test.collective:
                test = _Test(program)
        elif "nThread" in line:
            test = _Test(test.collective)
        elif (rank := _RANK.search(line)) is not None:
            test.ranks[int(rank[1][:9])] = rank[2]
            log.device = log.device or rank[3].strip() or None
        elif (head := _HEAD.search(line)) is not None:
            test.columns = head[1].split()
        elif test.columns and (row := _ROW.search(line)) is not None:
            words = row[1].split()
            at = next((i for i, word in enumerate(test.columns) if word in _TIMES), len(words))
            if at + 2 >= len(words) or len(log.points) > MOST_POINTS:
                continue
            if test.collective is None:
                nameless += 1
                continue
            _point(log, test, words[0], words[at], words[at + 2])
    if nameless:
        log.faults.append(
            f"{nameless} sizes of a collective that it does not name; all_reduce_perf and its like "
            "stand in the command line, or may stand in the file's name"
        )


def _point(log: Log, test: _Test, size: Any, micro: Any, bus_gb: Any) -> None:
    bytes_, seconds, printed = (_number(value) for value in (size, micro, bus_gb))
    seconds *= 1e-6
    if not (0 < seconds < SLOWEST_S and 1 <= bytes_ <= FASTEST):
        return
    assert test.collective is not None
    ranks, nodes = test.took_part()
    # What is printed of small messages is rounded to nothing.
    rate = bus(test.collective, ranks, int(bytes_), seconds) if ranks else printed * 1e9
    if 0 < rate < FASTEST:
        log.points.append(Point(test.collective, ranks, int(bytes_), seconds, rate, nodes))


def _number(value: Any) -> float:
    """A finite number, or -1."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return -1.0
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return -1.0
    return found if isfinite(found) else -1.0


def _program(text: str, pattern: re.Pattern[str]) -> str | None:
    found = pattern.search(text.lower().replace("-", "_"))
    return NAMES[found[1]] if found else None


# ── nvbandwidth ───────────────────────────────────────────────────────────────


def _nvbandwidth(text: str) -> Iterator[Copy]:
    """The tests in GB/s: the mean of each matrix, or its printed sum. Latencies are left out."""
    for block in re.split(r"^Running ", text, flags=re.MULTILINE)[1:]:
        test = (block.split(None, 1) or [""])[0].rstrip(".")
        if "latency" in test:
            continue
        values = []
        for line in block.splitlines():
            words = line.split()
            if len(words) > 1 and words[0].isdigit() and "." in line:
                values += [_number(word) for word in words[1:] if "." in word]
        total = re.search(rf"SUM {re.escape(test)}\s+(\S+)", block)
        yield from _copy(test, values or ([_number(total[1])] if total else []))


def _copy(test: str, values: Iterable[float]) -> Iterator[Copy]:
    """The mean of the pairs; a GPU with itself has 0 or nothing."""
    real = [value for value in values if 0 < value * 1e9 < FASTEST]
    if real:
        yield Copy(test[:80], sum(real) / len(real) * 1e9)


# ── JSON ──────────────────────────────────────────────────────────────────────


def _json(text: str, log: Log, name: str) -> None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        log.faults.append("it is JSON that breaks off, or none")
        return
    if isinstance(held := document.get("nvbandwidth"), dict):
        for case in _dicts(held.get("testcases")):
            rows = case.get("bandwidth_matrix")
            flat = [value for row in _list(rows) for value in _list(row)]
            if "latency" not in str(case.get("name")):
                log.copies += _copy(str(case.get("name")), map(_number, flat))
        return
    arguments = " ".join(map(str, _list(document.get("args"))))
    test = _Test(_program(arguments, _PROGRAM) or _program(name, _NAMED))
    config = document.get("config")
    for device in _dicts(config.get("devices") if isinstance(config, dict) else None):
        if isinstance(rank := device.get("rank"), int):
            test.ranks[rank] = str(device.get("hostname"))
            log.device = log.device or str(device.get("device_info") or "") or None
    results = list(_dicts(document.get("results")))
    if results and test.collective is None:
        log.faults.append("it does not say which collective it measured")
        return
    for row in results[: MOST_POINTS + 1]:
        body = row.get("out_of_place") or row.get("in_place")
        if isinstance(body, dict):
            micro = body.get("time", body.get("cpu_time"))
            _point(log, test, row.get("size"), micro, body.get("bus_bw"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    yield from (each for each in _list(value) if isinstance(each, dict))


# ── Bus bandwidth ─────────────────────────────────────────────────────────────


def bus(collective: str, ranks: int, size: int, seconds: float) -> float:
    """Bytes/s over the slowest wire, as nccl-tests counts them: the part that has to cross it."""
    if collective not in ROUNDS:
        return size / seconds
    return ROUNDS[collective] * (ranks - 1) / ranks * size / seconds


def largest(points: Sequence[Point]) -> float:
    """Bytes/s of the bus at large messages: the best of the three largest sizes."""
    ordered = sorted(points, key=lambda point: point.bytes)
    return max(point.bus_bytes_per_s for point in ordered[-3:])


def smallest(points: Sequence[Point]) -> float:
    """Seconds of a call that moves next to nothing: the fastest of the three smallest sizes."""
    ordered = sorted(points, key=lambda point: point.bytes)
    return min(point.seconds for point in ordered[:3])
