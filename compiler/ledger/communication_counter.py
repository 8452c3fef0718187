"""Calls and bytes of one rank's collectives, summed up."""

from __future__ import annotations

from collections import Counter as Sums
from typing import NamedTuple

from parlay.compiler.ledger.recipe import BYTES
from parlay.compiler.ledger.units import Sent


class Kind(NamedTuple):
    """What is summed up: calls of one collective, over one group, in one dtype."""

    group: str
    collective: str
    dtype: str


class Counter:
    """What one rank does in one step."""

    def __init__(self) -> None:
        self.calls: Sums[Kind] = Sums()
        self.bytes: Sums[Kind] = Sums()

    def add(
        self, group: str, collective: str, dtype: str, *, elements: int, calls: int = 1
    ) -> None:
        """`calls` times a message of `elements` elements."""
        kind = Kind(group, collective, dtype)
        self.calls[kind] += calls
        self.bytes[kind] += calls * elements * BYTES[dtype]

    def send(self, kind: Kind, sent: Sent, times: int = 1) -> None:
        """`sent`, so many times."""
        self.calls[kind] += times * sent.calls
        self.bytes[kind] += times * sent.elements * BYTES[kind.dtype]
