"""Specs by hand: nothing but a cluster and degrees, as the resolver would leave them."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import pytest
from parlay.compiler.spec.blocks import Cluster, Gpu, Link, Nic, Node, Parallel, Spec
from parlay.compiler.spec.schema import Setting


def make_job(
    *,
    gpus: int,
    per_node: int = 8,
    domain: int | None = None,
    nics: int | None = None,
    affinity: str = "gpu",
    **degrees: Any,
) -> Spec:
    """A spec of `gpus` GPUs with the given fields of `parallel`; dp follows from the rest."""
    sizes = {axis: degrees.get(axis, 1) for axis in ("tp", "cp", "pp", "ep", "etp")}
    sizes["dp"] = gpus // (sizes["tp"] * sizes["cp"] * sizes["pp"])
    fields = {
        "schedule": Setting("one_f_one_b"),
        "order": ("tp", "cp", "dp", "pp"),
        "shard": sizes["dp"] * sizes["cp"],
        **sizes,
        **degrees,
    }
    per_node = gcd(per_node, gpus)
    nic = nics and Nic(count=nics, bandwidth_bytes_per_s=5e10, latency_s=5e-6, affinity=affinity)
    node = Node(
        gpus=per_node,
        gpu=Gpu(memory_bytes=80 * 10**9),
        link=Link(kind="nvlink", bandwidth_bytes_per_s=4.5e11, domain=domain or per_node),
        nic=nic or None,
    )
    return Spec(cluster=Cluster(nodes=gpus // per_node, node=node), parallel=Parallel(**fields))


@pytest.fixture(scope="session")
def job() -> Callable[..., Spec]:
    """Makes a spec: `job(gpus=64, tp=8, pp=4)`."""
    return make_job
