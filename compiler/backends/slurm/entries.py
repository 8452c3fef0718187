"""How the code of each entry point is started on every node of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from parlay.compiler.backends.places import file_name, placer
from parlay.compiler.backends.slurm.batch import Job, has_gpus
from parlay.compiler.backends.slurm.options import settings
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.source import Source

SAVES_AT_SIGNAL: Final = "--exit-signal-handler --exit-signal SIGUSR1"
"""Megatron-LM: it saves after the step in which the signal came, and ends."""


ON_CPUS: Final = ("export DS_ACCELERATOR=cpu",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A command, in the lines that it is written in, and what is set before it.

    With `resumes` it goes on from the last save, or starts where there is none.
    """

    command: tuple[str, ...]
    resumes: bool
    exports: tuple[str, ...] = ()


def job_of(
    entry: str, phase: Phase, sources: Mapping[str, Source], *, folder: str | None = None
) -> Job:
    """The job that starts `entry`, a target, from its code in `folder`, else in `../ENTRY/`."""
    origins, cluster = phase.origins, phase.spec.cluster
    assert cluster is not None
    start = STARTS[entry](phase, f"../{entry}/" if folder is None else folder)
    path = "cluster.fabric.kind"
    known = origins.get(path) is not None
    return Job(
        source=file_name(origins),
        cluster=cluster,
        command=start.command,
        exports=start.exports,
        resumes=start.resumes,
        fabric=placer(origins, sources)(path) if known else "",
        settings=settings(phase),
    )


# ── The entry points ──────────────────────────────────────────────────────────


def _torch(phase: Phase, folder: str) -> Start:
    resumes = _saves(phase)
    return Start(
        command=(f"bash {folder}launch.sh" + (" --resume" if resumes else ""),), resumes=resumes
    )


def _megatron(phase: Phase, folder: str) -> Start:
    # `--load` stands in its arguments wherever `--save` does.
    resumes = phase.spec.checkpoint.path is not None
    words = f"bash {folder}pretrain.sh"
    return Start(command=(f"{words} {SAVES_AT_SIGNAL}" if resumes else words,), resumes=resumes)


def _deepspeed(phase: Phase, folder: str) -> Start:
    """By torchrun, as Slurm starts a process on every node: the launcher would log in to them."""
    cluster = phase.spec.cluster
    assert cluster is not None
    resumes = _saves(phase)
    command = (
        "torchrun",
        f"--nnodes {cluster.nodes}",
        f"--nproc-per-node {cluster.node.gpus}",
        '--rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}"',
        f"{folder}train.py" + (" --resume" if resumes else ""),
    )
    return Start(command=command, resumes=resumes, exports=() if has_gpus(cluster) else ON_CPUS)


def _saves(phase: Phase) -> bool:
    # The back end torch imports this module for its own job.
    from parlay.compiler.backends.torch.plan import saves

    return saves(phase.spec)


STARTS: Final[Mapping[str, Callable[[Phase, str], Start]]] = {
    "torch": _torch,
    "megatron": _megatron,
    "deepspeed": _deepspeed,
}
