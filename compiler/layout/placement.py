"""Where ranks stand: rank r on node r // gpus of a node, and in a fast domain likewise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parlay.compiler.spec.blocks.cluster import Cluster

Wire = Literal["link", "host", "fabric"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The machines as blocks of consecutive ranks.

    `domain` is the size of a fast domain; it may be a part of a node (PCIe pairs) or several
    nodes (NVL72). `nics` are the network cards of a node, None where the file names none.
    """

    world: int
    node: int
    domain: int
    nics: int | None = None
    own_nic: bool = True  # a card serves its own GPUs, not the whole node

    @classmethod
    def of(cls, cluster: Cluster) -> Placement:
        """The placement on `cluster`; a node without a link counts as one domain."""
        node = cluster.node
        nic = node.nic
        return cls(
            world=cluster.gpus,
            node=node.gpus,
            domain=node.link.domain if node.link else node.gpus,
            nics=nic.count if nic else None,
            own_nic=nic is None or nic.affinity == "gpu",
        )

    def node_of(self, rank: int) -> int:
        """The node that `rank` runs on."""
        return rank // self.node

    def domain_of(self, rank: int) -> int:
        """The fast domain that `rank` is in."""
        return rank // self.domain

    def wire(self, *, nodes: int, domains: int) -> Wire:
        """The slowest wire inside a group of so many nodes and domains.

        Within a domain the link, within a node the host, else the fabric.
        """
        if domains == 1:
            return "link"
        return "host" if nodes == 1 else "fabric"


def domain_fits(*, node: int, domain: int) -> bool:
    """Whether fast domains and nodes nest: one is a whole number of the other."""
    return node % domain == 0 or domain % node == 0
