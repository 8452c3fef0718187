"""What the network cards of a node give to one group of ranks."""

from __future__ import annotations

from parlay.compiler.checks.subject import Subject


def speed(subject: Subject, kind: str) -> float:
    """Bytes per second of one group's gathers, in or out of a node.

    A group takes in the whole of its weights once a node; groups of one node share the cards.
    """
    cluster, reach = subject.cluster, subject.laid_out.reach(kind)
    nic, fabric = cluster.node.nic, cluster.fabric
    assert nic is not None
    over = fabric.oversubscription if fabric and fabric.oversubscription else 1.0
    groups = cluster.node.gpus * reach.nodes / reach.size
    return nic.count * nic.bandwidth_bytes_per_s / over / max(groups, 1.0)
