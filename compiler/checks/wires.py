"""The wires that a group's traffic takes, and how much slower one is than another."""

from __future__ import annotations

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.placement import Wire
from parlay.dsl.source import Span


def speed_of(subject: Subject, wire: Wire) -> float | None:
    """Bytes per second of one GPU over a wire, one direction; None where the file says nothing.

    Over the fabric a GPU has its share of the node's cards, less the oversubscription.
    """
    node = subject.cluster.node
    if wire == "link":
        return node.link.bandwidth_bytes_per_s if node.link else None
    if wire == "host":
        return node.host.bandwidth_bytes_per_s if node.host else None
    if node.nic is None or node.nic.count is None or node.nic.bandwidth_bytes_per_s is None:
        return None
    fabric = subject.cluster.fabric
    over = fabric.oversubscription if fabric and fabric.oversubscription else 1.0
    return node.nic.count * node.nic.bandwidth_bytes_per_s / node.gpus / over


def cost(subject: Subject, wire: Wire) -> list[str]:
    """A note that sets `wire` beside the link inside the domain; none where a speed is unknown."""
    fast, slow = speed_of(subject, "link"), speed_of(subject, wire)
    if not fast or not slow:
        return []
    times = fast / slow
    note = f"{words.speed(slow)} a GPU over the {wire}, {words.speed(fast)} inside the domain"
    return [f"{note}: {times:.3g} times slower" if times > 1 else note]


def domain_label(subject: Subject, domain: int) -> tuple[Span, str]:
    """The place that sets the size of a fast domain."""
    gpus = words.counted(domain, "GPU")
    if subject.cluster.node.link is None:
        return subject.label("cluster.node.gpus", f"{gpus} a node")
    return subject.label("cluster.node.link.domain", f"{gpus} in a fast domain")
