"""The one writer of Slurm batch scripts, for every back end that starts ranks on a cluster.

`#SBATCH` lines take no quotes, so what stands in them is a whole number or an allow-listed word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from parlay.compiler.backends.fabric import exports
from parlay.compiler.backends.render import Code, render
from parlay.compiler.spec.blocks import Cluster

LONGEST: Final = 64

BEFORE: Final = 300
"""Seconds before the time limit at which a job is told to save, end, and queue itself again."""

PATIENCE: Final = 240
"""Seconds that it is given to save; after them it is queued again as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is started: `command`, in lines, on every node of `cluster`, by shell words that are
    safe.

    `source` is the `.par` file's name, `fabric` the comment on where its kind comes from, `exports`
    are lines of bash, `settings` those of sbatch. A job that `resumes` goes on from its last save
    each time it starts; only such a job is queued again.
    """

    source: str
    cluster: Cluster
    command: Sequence[str]
    resumes: bool
    fabric: str = ""
    exports: Sequence[str] = ()
    settings: Sequence[str] = ()


def needed(cluster: Cluster) -> bool:
    """Whether there is a scheduler to ask: several nodes, or GPUs."""
    return (cluster.nodes or 1) > 1 or has_gpus(cluster)


def has_gpus(cluster: Cluster) -> bool:
    """Whether a rank is a GPU; else it is a process on CPUs."""
    # A cluster in error has none.
    link = cluster.node.link if cluster.node else None
    return link is None or link.kind != "shared_memory"


def script(job: Job) -> str:
    """The text of job.sbatch."""
    cluster, gpus = job.cluster, has_gpus(job.cluster)
    return render(
        "slurm/job.sbatch.j2",
        {
            "source": Code(job.source),
            "name": Code(plain(job.source)),
            "nodes": cluster.nodes,
            "gpus": cluster.node.gpus if gpus else 0,
            "settings": [Code(setting) for setting in job.settings],
            "site": Code(_site(job.settings)),
            "several": cluster.nodes > 1,
            "resumes": job.resumes,
            "before": BEFORE,
            "patience": PATIENCE,
            "start": Code(" \\\n  ".join(job.command)),
            "exports": [Code(line) for line in job.exports],
            "fabric": Code(job.fabric),
            "nccl": [Code(line) for line in exports(cluster)] if gpus else [],
        },
    )


def _site(settings: Sequence[str]) -> str:
    """What is left to be told on the command line, where the site has no default for it."""
    told = {setting.partition("=")[0] for setting in settings}
    left = [f"--{name}" for name in ("account", "partition", "time") if name not in told]
    return f", with the site's {', '.join(left)}" if left else ""


def plain(name: str) -> str:
    """A job's name: at most 64 letters, digits, `.`, `_` and `-`, the first a letter or digit.

    `my job (1).par` --> `my-job-1`
    """
    stem = name.removesuffix(".par")
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")
    return kept[:LONGEST].rstrip("-._") or "parlay"
