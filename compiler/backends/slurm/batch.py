"""The one writer of Slurm batch scripts, for every back end that starts ranks on a cluster.

`#SBATCH` lines take no quotes, so what stands in them is a whole number or an allow-listed word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from parlay.compiler.backends.render import Code, render
from parlay.compiler.spec.blocks import Cluster

LONGEST: Final = 64

NCCL: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "infiniband": (("NCCL_NET", "IB"),),
    "roce": (("NCCL_NET", "IB"), ("NCCL_IB_GID_INDEX", "3")),
    "ethernet": (("NCCL_NET", "Socket"),),
    "slingshot": (("NCCL_NET", "AWS Libfabric"), ("FI_PROVIDER", "cxi")),
}
"""By the kind of the fabric: with a network named, NCCL fails where it would fall back to a slower
one. What the site has set already wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is started: `command` on every node of `cluster`, by shell words that are safe.

    `source` is the `.par` file's name, `fabric` the comment on where its kind comes from.
    A job that `resumes` goes on from its last save each time it starts; only such a job is queued
    again.
    """

    source: str
    cluster: Cluster
    command: str
    resumes: bool
    fabric: str = ""


def needed(cluster: Cluster) -> bool:
    """Whether there is a scheduler to ask: several nodes, or GPUs."""
    return cluster.nodes > 1 or _has_gpus(cluster)


def script(job: Job) -> str:
    """The text of job.sbatch."""
    cluster = job.cluster
    kind = cluster.fabric.kind if cluster.fabric and cluster.nodes > 1 else ""
    return render(
        "slurm/job.sbatch.j2",
        {
            "source": Code(job.source),
            "name": Code(plain(job.source)),
            "nodes": cluster.nodes,
            "gpus": cluster.node.gpus if _has_gpus(cluster) else 0,
            "several": cluster.nodes > 1,
            "resumes": job.resumes,
            "command": Code(job.command),
            "fabric": Code(job.fabric),
            "nccl": [Code(f'export {n}="${{{n}:-{value}}}"') for n, value in NCCL.get(kind, ())],
        },
    )


def plain(name: str) -> str:
    """A job's name: at most 64 letters, digits, `.`, `_` and `-`, the first a letter or digit.

    `my job (1).par` --> `my-job-1`
    """
    stem = name.removesuffix(".par")
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")
    return kept[:LONGEST].rstrip("-._") or "parlay"


def _has_gpus(cluster: Cluster) -> bool:
    link = cluster.node.link
    return link is None or link.kind != "shared_memory"
