"""What NCCL is told of the network between nodes: one table for every script that is emitted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from parlay.compiler.spec.blocks import Cluster

NCCL: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        "infiniband": (("NCCL_NET", "IB"), ("NCCL_IB_TIMEOUT", "22")),
        "roce": (("NCCL_NET", "IB"), ("NCCL_IB_GID_INDEX", "3"), ("NCCL_IB_TIMEOUT", "22")),
        "ethernet": (("NCCL_NET", "Socket"),),
        "slingshot": (("NCCL_NET", "AWS Libfabric"), ("FI_PROVIDER", "cxi")),
    }
)
"""By the kind of the fabric: with a network named, NCCL fails where it would fall back to a slower
one. 2^22 · 4.096 us = 17 s pass before a card gives a peer up, as large fabrics want it."""


def nccl(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """The variables of a cluster's fabric; none on one node."""
    if cluster.nodes == 1 or cluster.fabric is None:
        return ()
    return NCCL.get(cluster.fabric.kind, ())


def exports(cluster: Cluster) -> list[str]:
    """Lines of bash; what the caller's environment has set already wins."""
    return [f'export {name}="${{{name}:-{value}}}"' for name, value in nccl(cluster)]
