"""Kubeflow: a TrainJob, and the code that it starts in a ConfigMap beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib.metadata import version as version_of_package
from typing import Final

from parlay.compiler import backends
from parlay.compiler.backends import slurm
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.kubernetes import manifest, names
from parlay.compiler.backends.kubernetes.brought import brought, claim_of
from parlay.compiler.backends.kubernetes.options import (
    UNFIT,
    Options,
    options_of,
    refusals_of_options,
)
from parlay.compiler.backends.megatron import launch
from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.render import Code, render
from parlay.compiler.backends.torch.plan import saves
from parlay.compiler.backends.yaml_text import documents
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity, error
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]

MOST_BYTES: Final = 1 << 20
"""What a ConfigMap may hold."""

STARTERS: Final = ("launch.sh", "pretrain.sh", "job.sbatch")
"""What starts the code elsewhere; here start.sh does."""


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """What the code cannot express, options that are unfit, and what the cluster has to bring."""
    unfit = tuple(refusals_of_options(phase))
    yield from unfit
    options = options_of(phase)
    yield from backends.refusals(options.entry, phase)
    cluster = phase.spec.cluster
    if cluster is None or cluster.node is None or unfit:
        return
    counted = manifest.gpu_resource(cluster, options)
    if counted in options.resources:
        span = phase.origins.span("target.kubernetes.options.resources")
        said = f"`{counted}` follows from the file, which makes it {cluster.node.gpus} a node"
        yield error(UNFIT, said, span, "given twice", help=["it need not be given"])
    else:
        yield from brought(phase, options)


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """trainjob.yaml of a phase that passed its checks."""
    told = tuple(refusals(phase))
    if any(said.severity is Severity.ERROR for said in told):
        return Emission({}, told)
    options = options_of(phase)
    code = backends.emitter(options.entry)(phase, layout, sources)
    told = tuple(dict.fromkeys((*told, *code.diagnostics)))
    if not code.files:
        return Emission({}, told)
    cluster = phase.spec.cluster
    assert cluster is not None
    name = names.job_name(phase.origins.start.file, phase.name)
    files = {path: text for path, text in code.files.items() if path not in STARTERS}
    files["start.sh"] = _start(phase, layout, options)
    size = sum(len(path) + len(text.encode()) for path, text in files.items())
    if size > MOST_BYTES:
        said = f"the code of this layout has {size:,} bytes; a ConfigMap holds {MOST_BYTES:,}"
        place = phase.origins.block("parallel")
        return Emission({}, (*told, error(UNFIT, said, place, "laid out by these degrees")))
    made = manifest.Manifest(
        name=name,
        cluster=cluster,
        ranks=layout.world,
        options=options,
        files=files,
        env=_environment(phase, options, name),
        claim=claim_of(phase, options),
    )
    objects = [manifest.config_map(made), manifest.train_job(made)]
    return Emission({"trainjob.yaml": _header(phase, made) + documents(objects)}, told)


def _start(phase: Phase, layout: Layout, options: Options) -> str:
    return render(
        "kubernetes/start.sh.j2",
        {
            "name": Code(file_name(phase.origins)),
            "workspace": Code(shlex.quote(options.workspace)),
            "code": Code(manifest.CODE),
            "entry": options.entry,
            "ranks": layout.world,
        },
    )


def _environment(phase: Phase, options: Options, name: str) -> dict[str, str]:
    """What is set in every pod; the options have the last word."""
    cluster = phase.spec.cluster
    assert cluster is not None
    found: dict[str, str] = {}
    if options.entry == "torch":
        found["PARLAY_OUT"] = f"{options.workspace}/{name}"
        if saves(phase.spec):
            # A pod that is started again goes on from the last save.
            found["PARLAY_RESUME"] = "1"
    elif launch.one_queue(phase):
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    found |= dict(slurm.NCCL.get(manifest.kind_of_fabric(cluster), ()))
    return {**found, **options.env}


def _header(phase: Phase, made: manifest.Manifest) -> str:
    nodes = made.cluster.nodes
    machines = f"{nodes} nodes" if nodes > 1 else "1 node"
    ranks = f"{made.ranks} ranks" if made.ranks > 1 else "1 rank"
    lines = [
        f"Starts {file_name(phase.origins)} by Kubeflow Trainer: {ranks} on {machines}. "
        f"By Parlay {version_of_package('parlay')}.",
        "`kubectl create -f trainjob.yaml`; a job is never changed: delete it to start it anew.",
    ]
    if made.claim is not None:
        lines.append(f"The claim {made.claim} has to be there, and to be seen by every node.")
    return "".join(f"# {line}\n" for line in lines)
