"""What one rank sends in a step, by group: bytes, wire, and what of its time the step waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import count, data, runs, seconds
from parlay.compiler.report.part import Part

SMALL: Final = 1e-5
"""A message of less than this share of all bytes, and of the step, is left out."""


@dataclass(frozen=True, slots=True)
class Message:
    """One kind of message; the bars are in hundredths of the longest time of any.

    Figures are of the document's part at `at`.
    """

    at: str
    what: str
    collective: str
    dtype: str
    stages: str
    calls: Figure | None
    each: Figure | None
    sent: Figure | None
    alone: Figure | None
    exposed: Figure | None
    hidden: Figure | None
    exposed_bar: float
    hidden_bar: float
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class TrafficGroup:
    """The messages of one group."""

    at: str
    name: str
    ranks: Figure | None
    nodes: Figure | None
    per_nic: Figure | None
    link: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class TrafficSection:
    """`by_group` and `by_link` are what a rank of the first stage sends in all."""

    groups: tuple[TrafficGroup, ...]
    priced: bool
    left_out: int
    by_group: tuple[tuple[str, Figure], ...]
    by_link: tuple[tuple[str, Figure], ...]


def traffic_section(part: Part) -> TrafficSection:
    """The groups in the order of what they send, and the messages of each likewise."""
    lines = part.book.communication
    largest = sorted(_telling(part), key=lambda n: -lines[n].wire_bytes_per_step)
    times = [t for call in part.book.calls for t in (call.seconds, call.exposed_seconds)]
    longest = max(times, default=0.0) or 1.0
    by_group: dict[str, list[int]] = {}
    for number in largest:
        by_group.setdefault(lines[number].group, []).append(number)
    groups = []
    for name, numbers in by_group.items():
        at = f"communication.{numbers[0]}"
        first = part.ledger.below(at)
        groups.append(
            TrafficGroup(
                at,
                name,
                first.figure("ranks", count),
                first.figure("nodes", count),
                first.figure("groups_per_nic", count) if lines[numbers[0]].groups_per_nic else None,
                lines[numbers[0]].link,
                tuple(_message(part, number, longest) for number in numbers),
            )
        )
    return TrafficSection(
        tuple(groups),
        bool(part.book.calls),
        sum(line.collective != "recv" for line in lines) - len(largest),
        _totals(part, "wire_bytes_by_group"),
        _totals(part, "wire_bytes_by_link"),
    )


def _telling(part: Part) -> Iterator[int]:
    """The numbers of the lines that are more than a speck of the traffic, or of the step.

    What is received is what another rank sends.
    """
    lines, calls = part.book.communication, part.book.calls
    whole = sum(line.wire_bytes_per_step for line in lines)
    step = part.book.time.step_seconds if part.book.time else 0.0
    for number, line in enumerate(lines):
        if line.collective == "recv":
            continue
        waited = max(calls[number].seconds, calls[number].exposed_seconds) if calls else 0.0
        if line.wire_bytes_per_step >= SMALL * whole or waited > SMALL * step > 0.0:
            yield number


def _message(part: Part, number: int, longest: float) -> Message:
    line, at = part.book.communication[number], f"communication.{number}"
    figures = part.ledger.below(at)
    call = part.book.calls[number] if part.book.calls else None
    hides = call is not None and call.exposed_seconds < call.seconds
    exposed = 0.0 if call is None else call.exposed_seconds
    alone = 0.0 if call is None else call.seconds
    return Message(
        at,
        line.what,
        line.collective,
        line.dtype,
        runs(line.stages),
        figures.figure("calls_per_step", count),
        figures.figure("bytes_per_call", data),
        figures.combined("product", "wire_bytes_per_call", "calls_per_step", data),
        figures.figure("seconds", seconds),
        figures.figure("exposed_seconds", seconds),
        figures.combined("difference", "seconds", "exposed_seconds", seconds) if hides else None,
        round(100 * exposed / longest, 1),
        round(100 * max(0.0, alone - exposed) / longest, 1),
        line.formula,
        "" if call is None else call.source,
    )


def _totals(part: Part, name: str) -> tuple[tuple[str, Figure], ...]:
    found = part.ledger.at(f"communication_totals.{name}") or {}
    figures = [
        (key, part.ledger.figure(f"communication_totals.{name}.{key}", data)) for key in found
    ]
    return tuple((key, figure) for key, figure in figures if figure is not None)
