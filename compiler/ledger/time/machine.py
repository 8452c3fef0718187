"""The machine as the time model sees it: rates of one GPU and of the wires of each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from parlay.compiler.layout import Layout, Reach
from parlay.compiler.spec.blocks import Cluster, Gpu, Spec

LOW: Final = ("fp8", "mxfp8", "nvfp4")
"""Precisions at which only the linear layers of the blocks run; the rest stays at bf16."""

HOST_RATE: Final = 12e9
"""Bytes/s between GPUs of one node through the host where the file says nothing: PCIe 3 x16."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What one rank of a group sends through: bytes/s, seconds a message, and the wire's name.

    `hop` is what a step of a ring takes in the mean, most of whose neighbours share a node. `near`
    is the bytes/s of the link inside the fast domain, `outside` the share of a group's peers that
    lie beyond it.
    """

    size: int
    rate: float
    latency: float
    hop: float
    link: str
    near: float
    outside: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one GPU: FLOP/s dense and bytes/s. `units` is how many tiles it works on at once."""

    wide_flops: float
    low_flops: float
    memory_rate: float
    units: int
    cluster: Cluster
    known: dict[str, Wire] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Spec, *, units: int, peak: float | None = None) -> Machine:
        """The machine of a spec; `peak` stands in where the GPU gives no figure."""
        cluster = spec.cluster
        assert cluster is not None and spec.train is not None
        gpu, precision = cluster.node.gpu, spec.train.precision
        wide = wide_peak(gpu, precision) or peak or 1e12
        low = low_peak(gpu, precision) or (2 * wide if peak and precision != "nvfp4" else wide)
        return cls(wide, low, gpu.bandwidth_bytes_per_s or wide / 300, units, cluster)

    def wire(self, layout: Layout, kind: str) -> Wire:
        """The wire of the groups of `kind`, worked out once.

        On the fabric a ring enters and leaves a node (or a domain of several nodes) through the
        cards of the ranks it has there, so its rate is one GPU's share of the cards times those
        ranks, never above the link's.
        """
        if kind not in self.known:
            self.known[kind] = self._wire(layout, kind)
        return self.known[kind]

    def _wire(self, layout: Layout, kind: str) -> Wire:
        reach = layout.reach(kind)
        near, latency = self._link()
        if reach.link == "link":
            return Wire(reach.size, near, latency, latency, "link", near, 0.0)
        host = self.cluster.node.host
        through = (host.bandwidth_bytes_per_s if host else None) or HOST_RATE
        outside = 1.0 - (reach.size / reach.domains - 1) / max(1, reach.size - 1)
        if reach.link == "host":
            return Wire(reach.size, min(near, through), latency, latency, "host", near, outside)
        rate, delay = self._fabric(reach, through)
        far = min(reach.nodes, reach.domains) / reach.size
        hop = far * delay + (1 - far) * latency
        return Wire(reach.size, min(near, rate), delay, hop, "fabric", near, outside)

    def per_gpu_fabric(self) -> float:
        """Bytes/s that one GPU gets on the fabric when all of its node send."""
        node = self.cluster.node
        if node.nic is None:
            return HOST_RATE
        return node.nic.bandwidth_bytes_per_s * node.nic.count / node.gpus / self._oversubscribed()

    def _link(self) -> tuple[float, float]:
        link = self.cluster.node.link
        return (link.bandwidth_bytes_per_s, link.latency_s) if link else (HOST_RATE, 5e-6)

    def _fabric(self, reach: Reach, through: float) -> tuple[float, float]:
        nic, fabric = self.cluster.node.nic, self.cluster.fabric
        if nic is None:
            return through, 2e-5
        blocks = min(reach.nodes, reach.domains)
        delay = nic.latency_s + (fabric.latency_s if fabric else 0.0)
        return self.per_gpu_fabric() * reach.size / blocks, delay

    def _oversubscribed(self) -> float:
        fabric = self.cluster.fabric
        if fabric is None or (fabric.pod is not None and self.cluster.nodes <= fabric.pod):
            return 1.0
        return fabric.oversubscription


def wide_peak(gpu: Gpu, precision: str) -> float | None:
    """The dense peak of what is not at low precision: bf16, or fp16 or fp32 where asked for."""
    if precision == "fp32":
        return gpu.fp32_flops
    if precision == "fp16":
        return gpu.fp16_flops or gpu.bf16_flops
    return gpu.bf16_flops or gpu.fp16_flops


def low_peak(gpu: Gpu, precision: str) -> float | None:
    """The dense peak of the linear layers at fp8 or fp4; None at the other precisions."""
    if precision == "nvfp4":
        return gpu.fp4_flops or gpu.fp8_flops
    return gpu.fp8_flops if precision in LOW else None
