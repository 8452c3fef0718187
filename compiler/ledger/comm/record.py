"""What the communication ledger is made of."""

from __future__ import annotations

from typing import NamedTuple


class Raw(NamedTuple):
    """A collective before its group is placed: `calls` times a message of `message_bytes`.

    `hidden` says that it may run beside computation. `ranks` overrides the group's size where only
    a part of it takes part.
    """

    group: str
    what: str
    collective: str
    dtype: str
    message_bytes: float
    calls: int
    hidden: bool
    formula: str
    ranks: int | None = None


class CommLine(NamedTuple):
    """One kind of message of a step, as one rank of each of `stages` sends it.

    `bytes_per_call` is the full tensor on one rank (the mean, where buckets are uneven),
    `wire_bytes_per_call` what that rank sends by `algorithm` (ring, tree or direct) in
    `latency_steps` steps. `hideable` says that it may run
    beside computation. `groups_per_nic` is how many groups share a network card, 0 inside a node.
    """

    group: str
    what: str
    collective: str
    dtype: str
    bytes_per_call: float
    wire_bytes_per_call: float
    calls_per_step: int
    link: str
    ranks: int
    nodes: int
    groups_per_nic: float
    algorithm: str
    latency_steps: int
    hideable: bool
    stages: tuple[int, ...]
    formula: str

    @property
    def wire_bytes_per_step(self) -> float:
        """Bytes that one rank sends in one step."""
        return self.wire_bytes_per_call * self.calls_per_step
