"""Seconds of one collective: α·messages + bytes / B, by ring or tree.

Volumes are those of ring algorithms (Patarasuk & Yuan 2009): an all-gather or reduce-scatter of S
bytes over n ranks sends S·(n−1)/n from each, an all-reduce twice that. An all-reduce's latency is
the shorter of ring and tree, 2·(n−1) or 4·log2 n messages, as NCCL chooses by size; gathers and
scatters have the ring alone, n−1 hops.
"""

from __future__ import annotations

from math import log2

from parlay.compiler.ledger.time.machine import Wire

ROUNDS = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0}


def sent(collective: str, size: int, message: float) -> float:
    """Bytes that one rank sends for a message of `message` bytes."""
    if collective in ROUNDS:
        return ROUNDS[collective] * message * (size - 1) / size
    if collective == "all_to_all":
        return message * (size - 1) / size
    return message


def seconds(collective: str, wire: Wire, message: float, *, far: float = 0.0) -> float:
    """Seconds of one call; `far` is what one GPU gets on the fabric, for the all-to-all.

    A collective that was measured over this wire has its own rate and latency. In an all-to-all the
    share for peers inside the domain takes the link while the rest takes the fabric, so the slower
    of the two counts.
    """
    if wire.size == 1:
        return 0.0
    volume = sent(collective, wire.size, message)
    rate, latency, hop = wire.rate, wire.latency, wire.hop
    known = wire.measured.get(collective)
    if known is not None:
        rate, latency, hop = known.rate, known.latency, known.latency
    if collective == "all_to_all":
        if wire.outside and wire.link == "fabric":
            moved = max(volume * wire.outside / (far or rate), volume / wire.near)
        else:
            near = wire.near if known is None else rate
            moved = volume / (rate if wire.outside else near)
        return moved + latency * log2(wire.size)
    if collective in ROUNDS:
        delay = ROUNDS[collective] * (wire.size - 1) * hop
        if collective == "all_reduce":
            delay = min(delay, 4 * log2(wire.size) * latency)
        return delay + volume / rate
    if collective == "broadcast":
        return (wire.size - 1) * hop + volume / rate
    return latency + volume / rate
