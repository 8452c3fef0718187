"""What one rank sends for a collective, and in how many steps: rings and double binary trees."""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple

from parlay.compiler.layout import Reach
from parlay.compiler.spec.blocks import Cluster

DEFAULT_LATENCY_S = 5e-6
DEFAULT_BANDWIDTH_BYTES_PER_S = 25e9


class Wire(NamedTuple):
    """A message's way: bytes that one rank sends, steps one after the other, by which algorithm."""

    sent_bytes: float
    steps: int
    algorithm: str


def wire(
    collective: str, message_bytes: float, ranks: int, *, reach: Reach, cluster: Cluster
) -> Wire:
    """The way of one message of `message_bytes` over `ranks` ranks.

    Ring all-reduce: 2M(N-1)/N bytes in 2(N-1) steps; reduce-scatter, all-gather and all-to-all half
    of both. Double binary tree (NCCL 2.4): 2M bytes in 2·log2 N steps, taken between nodes where
    that is faster: small messages.
    """
    if collective in ("send", "recv", "broadcast"):
        return Wire(float(message_bytes), 1, "direct")
    ring = message_bytes * (ranks - 1) / ranks
    if collective == "all_to_all":
        return Wire(ring, ranks - 1, "direct")
    if collective != "all_reduce":
        return Wire(ring, ranks - 1, "ring")
    levels = 2 * ceil(log2(ranks)) if ranks > 1 else 0
    if reach.nodes > 1:
        latency, bandwidth = speed(cluster, reach.link)
        around = 2 * (ranks - 1) * latency + 2 * ring / bandwidth
        over = levels * latency + 2 * message_bytes / bandwidth
        if over < around:
            return Wire(2.0 * message_bytes, levels, "tree")
    return Wire(2 * ring, 2 * (ranks - 1), "ring")


def speed(cluster: Cluster, link: str) -> tuple[float, float]:
    """Seconds of one message and bytes a second of one GPU on a link, where the file says them.

    What a calibration measured of all-reduces goes before what is stated.
    """
    node = cluster.node
    measured = getattr(cluster.calibration, link, None) if link in ("link", "fabric") else None
    if measured is not None and measured.all_reduce is not None:
        return measured.all_reduce.latency_s, measured.all_reduce.bandwidth_bytes_per_s
    if link == "link" and node.link is not None:
        return node.link.latency_s, node.link.bandwidth_bytes_per_s
    if link == "host" and node.host is not None and node.host.bandwidth_bytes_per_s:
        return DEFAULT_LATENCY_S, node.host.bandwidth_bytes_per_s
    if link == "fabric" and node.nic is not None:
        added = cluster.fabric.latency_s if cluster.fabric else 0.0
        share = node.nic.bandwidth_bytes_per_s * node.nic.count / node.gpus
        return node.nic.latency_s + added, share
    return DEFAULT_LATENCY_S, DEFAULT_BANDWIDTH_BYTES_PER_S
