"""The machine as the time model sees it: rates of one GPU and of the wires of each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from parlay.compiler.layout import Layout, Reach
from parlay.compiler.spec.blocks import Cluster, Gpu, Spec
from parlay.compiler.spec.blocks.calibration import Call, Calls

LOW: Final = ("fp8", "mxfp8", "nvfp4")
"""Precisions at which only the linear layers of the blocks run; the rest stays at bf16."""

HOST_RATE: Final = 12e9
"""Bytes/s between GPUs of one node through the host where the file says nothing: PCIe 3 x16."""


class Speed(NamedTuple):
    """What a collective was measured at: bytes/s, seconds a step."""

    rate: float
    latency: float


MEASURED: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
"""The collectives that a calibration knows."""
NONE: Final[Mapping[str, Speed]] = MappingProxyType({})
COMPONENT_OF: Final[Mapping[str, str]] = MappingProxyType(
    {"tp": "tp", "etp": "tp", "kv": "tp", "cp": "cp", "ep": "ep", "pp": "pp"}
)
"""Group -> the component that its messages are; `dp` where the group is not here."""
PLAIN: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wire:
    """What one rank of a group sends through: bytes/s, seconds a message, and the wire's name.

    `hop` is what a step of a ring takes in the mean, most of whose neighbours share a node. `near`
    is the bytes/s of the link inside the fast domain, `outside` the share of a group's peers that
    lie beyond it. `measured` has what a calibration says of single collectives instead.
    """

    size: int
    rate: float
    latency: float
    hop: float
    link: str
    near: float
    outside: float
    measured: Mapping[str, Speed] = field(default_factory=lambda: NONE)


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one GPU: FLOP/s dense and bytes/s. `units` is how many tiles it works on at once.

    Messages are priced at nominal rates and then take `factors` times as long, by component. What
    was measured holds that loss already, so its nominal rate is the measured one times the factor.
    """

    wide_flops: float
    low_flops: float
    memory_rate: float
    units: int
    cluster: Cluster
    factors: Mapping[str, float] = field(default_factory=lambda: PLAIN)
    known: dict[str, Wire] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        spec: Spec,
        *,
        units: int,
        peak: float | None = None,
        factors: Mapping[str, float] = PLAIN,
    ) -> Machine:
        """The machine of a spec; `peak` stands in where the GPU gives no figure."""
        cluster = spec.cluster
        assert cluster is not None and spec.train is not None
        gpu, precision = cluster.node.gpu, spec.train.precision
        wide = wide_peak(gpu, precision) or peak or 1e12
        low = low_peak(gpu, precision) or (2 * wide if peak and precision != "nvfp4" else wide)
        return cls(wide, low, gpu.bandwidth_bytes_per_s or wide / 300, units, cluster, factors)

    def wire(self, layout: Layout, kind: str) -> Wire:
        """The wire of the groups of `kind`, worked out once.

        On the fabric a ring enters and leaves a node (or a domain of several nodes) through the
        cards of the ranks it has there, so its rate is one GPU's share of the cards times those
        ranks, never above the link's.
        """
        if kind not in self.known:
            self.known[kind] = self._wire(layout, kind)
        return self.known[kind]

    def nearest(self, reach: Reach) -> Wire:
        """The wire of groups that reach so far, at the shortest of latencies."""
        wire = self._of(reach, "")
        latency = min(wire.latency, self._link()[1], self._fabric(reach, self.host_rate())[1])
        return replace(wire, latency=latency, hop=min(latency, wire.hop))

    def _wire(self, layout: Layout, kind: str) -> Wire:
        return self._of(layout.reach(kind), kind)

    def _of(self, reach: Reach, kind: str) -> Wire:
        near, latency = self._link()
        if reach.link == "link":
            measured = self._measured(reach, kind)
            return Wire(reach.size, near, latency, latency, "link", near, 0.0, measured)
        through = self.host_rate()
        outside = 1.0 - (reach.size / reach.domains - 1) / max(1, reach.size - 1)
        if reach.link == "host":
            rate, measured = min(near, through), self._measured(reach, kind)
            return Wire(reach.size, rate, latency, latency, "host", near, outside, measured)
        rate, delay = self._fabric(reach, through)
        far = min(reach.nodes, reach.domains) / reach.size
        hop = far * delay + (1 - far) * latency
        rate, measured = min(near, rate), self._measured(reach, kind)
        inside = self.cluster.calibration and self.cluster.calibration.link
        if inside and inside.all_to_all:
            near = inside.all_to_all.bandwidth_bytes_per_s * self._factor(kind)
        return Wire(reach.size, rate, delay, hop, "fabric", near, outside, measured)

    def host_rate(self) -> float:
        """Bytes/s between one GPU and host memory."""
        measured = self.cluster.calibration and self.cluster.calibration.host_bytes_per_s
        host = self.cluster.node.host
        return measured or (host.bandwidth_bytes_per_s if host else None) or HOST_RATE

    def _factor(self, kind: str) -> float:
        """By how much messages of a group take longer than their nominal time."""
        return self.factors.get(COMPONENT_OF.get(kind, "dp"), 1.0)

    def per_gpu_fabric(self, collective: str = "", kind: str = "") -> float:
        """Bytes/s that one GPU gets on the fabric when all of its node send.

        As `collective` was measured between nodes, where it was, for groups of `kind`.
        """
        calls = self.cluster.calibration and self.cluster.calibration.fabric
        call: Call | None = getattr(calls, collective, None) if calls and collective else None
        if call is not None:
            return call.bandwidth_bytes_per_s * self._factor(kind)
        node = self.cluster.node
        if node.nic is None:
            return HOST_RATE
        return node.nic.bandwidth_bytes_per_s * node.nic.count / node.gpus / self._oversubscribed()

    def _measured(self, reach: Reach, kind: str) -> Mapping[str, Speed]:
        """What a calibration says of the collectives over this kind of wire.

        What was measured in one node by more ranks than a fast domain has, went over the host.
        """
        calibration, node = self.cluster.calibration, self.cluster.node
        if calibration is None:
            return NONE
        calls, times = calibration.fabric, reach.size / min(reach.nodes, reach.domains)
        if reach.link != "fabric":
            calls, times = calibration.link, 1.0
            domain = node.link.domain if node.link else 1
            if calls is not None and (calls.ranks <= domain) != (reach.link == "link"):
                return NONE
        return _speeds(calls, times, self._factor(kind)) if calls is not None else NONE

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


def _speeds(calls: Calls, times: float, factor: float) -> Mapping[str, Speed]:
    """Each collective that was measured, less the `factor` that its time is multiplied by.

    `times` ranks of a ring enter a node side by side.
    """
    found: dict[str, Speed] = {}
    for name in MEASURED:
        call: Call | None = getattr(calls, name)
        if call is not None:
            many = 1.0 if name == "all_to_all" else times
            rate = call.bandwidth_bytes_per_s * many * factor
            found[name] = Speed(rate, call.latency_s / factor)
    return found


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
