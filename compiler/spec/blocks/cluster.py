"""The machines, their wires and their failures."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.spec.blocks.calibration import Calibration
from parlay.compiler.spec.schema import (
    Derived,
    block,
    choice,
    compute,
    count,
    data,
    money,
    rate,
    real,
    time,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator."""

    memory_bytes: int = data("memory", "Memory that the driver shows.")
    bandwidth_bytes_per_s: float | None = rate("bandwidth", "Memory bandwidth.", None)
    bf16_flops: float | None = compute("bf16", "Dense peak at bf16.", None)
    fp16_flops: float | None = compute("fp16", "Dense peak at fp16.", None)
    fp8_flops: float | None = compute("fp8", "Dense peak at fp8.", None)
    fp4_flops: float | None = compute("fp4", "Dense peak at fp4.", None)
    fp32_flops: float | None = compute("fp32", "Peak at fp32.", None)
    price_per_h: float | None = money("price", "Price of one accelerator hour.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The wire inside a fast domain."""

    kind: str = choice(
        "kind",
        ("nvlink", "nvswitch", "pcie", "infinity_fabric", "shared_memory"),
        "What the wire is.",
    )
    bandwidth_bytes_per_s: float = rate("bandwidth", "Of one GPU, one direction.")
    latency_s: float = time("latency", "Of one message.", 2e-6)
    domain: int = count(
        "domain",
        "GPUs in one fast domain.",
        Derived("cluster.node.gpus", ("cluster.node.gpus",), lambda gpus: gpus),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The memory of one node."""

    memory_bytes: int | None = data("memory", "Host memory of one node.", None)
    bandwidth_bytes_per_s: float | None = rate(
        "bandwidth", "Between one GPU and host memory, one direction.", None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvme:
    """Local disks of one node."""

    capacity_bytes: int | None = data("capacity", "Of one node.", None)
    bandwidth_bytes_per_s: float | None = rate("bandwidth", "Of one node.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """The network cards of one node."""

    count: int = count("count", "Network cards of a node.")
    bandwidth_bytes_per_s: float = rate("bandwidth", "Of one card, one direction.")
    latency_s: float = time("latency", "Of one message between nodes.", 5e-6)
    affinity: str = choice(
        "affinity", ("gpu", "node"), "Whether a card serves its own GPU or the node.", "gpu"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine."""

    gpus: int = count("gpus", "GPUs of a node.", maximum=1024)
    gpu: Gpu = block("gpu", Gpu, "The accelerator.", preset="gpu", required=True)
    link: Link | None = block("link", Link, "The wire inside a fast domain.")
    host: Host | None = block("host", Host, "Host memory.")
    nvme: Nvme | None = block("nvme", Nvme, "Local disks.")
    nic: Nic | None = block("nic", Nic, "Network cards.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The network between nodes."""

    kind: str = choice(
        "kind",
        ("infiniband", "roce", "ethernet", "slingshot", "loopback"),
        "What the network is.",
        "infiniband",
    )
    oversubscription: float = real(
        "oversubscription",
        "Bandwidth below over bandwidth above the leaf switches.",
        1.0,
        minimum=1,
    )
    pod: int | None = count("pod", "Nodes under one non-blocking part.", None)
    latency_s: float = time("latency", "Added by the switches.", 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where checkpoints go."""

    bandwidth_bytes_per_s: float | None = rate("bandwidth", "Of the whole cluster.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often it breaks and how fast it is back."""

    gpu_mtbf_s: float | None = time(
        "gpu_mtbf", "Mean time between failures of one GPU with its share of the node.", None
    )
    restart_s: float = time("restart", "From a failure to the first step again.", 600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The machines."""

    nodes: int = count("nodes", "Machines.", 1, maximum=1_000_000)
    node: Node = block("node", Node, "One machine.", preset="node", required=True)
    fabric: Fabric | None = block("fabric", Fabric, "The network between nodes.")
    storage: Storage | None = block("storage", Storage, "Where checkpoints go.")
    reliability: Reliability | None = block("reliability", Reliability, "Failures and restarts.")
    calibration: Calibration | None = block(
        "calibration", Calibration, "Measured figures.", preset="calibration"
    )

    @property
    def gpus(self) -> int:
        """GPUs in all: the world size."""
        return self.nodes * self.node.gpus
