"""Kubeflow: a TrainJob, and the code that it starts in a ConfigMap beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version as version_of_package
from typing import Final

from parlay.compiler import backends
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.fabric import nccl
from parlay.compiler.backends.kubernetes import manifest, names
from parlay.compiler.backends.kubernetes.brought import brought, claim_of
from parlay.compiler.backends.kubernetes.options import (
    UNFIT,
    Options,
    entries_of,
    options_of,
    refusals_of_options,
)
from parlay.compiler.backends.megatron import launch
from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.render import Code, render
from parlay.compiler.backends.slurm.batch import has_gpus
from parlay.compiler.backends.torch.plan import saves, tokenizes
from parlay.compiler.backends.yaml_text import documents
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity, error
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]

MOST_BYTES: Final = 1 << 20
"""What a ConfigMap may hold."""

STARTERS: Final = ("launch.sh", "pretrain.sh", "job.sbatch", "hostfile")
"""What starts the code elsewhere; here start.sh does."""


def refusals(phase: Phase, beside: Sequence[str] = ()) -> Iterator[Diagnostic]:
    """What the code cannot express, options that are unfit, and what the cluster has to bring.

    `beside` are the targets that are asked for together with this one, which tell their own.
    """
    unfit = tuple(refusals_of_options(phase))
    yield from unfit
    options = options_of(phase)
    entries = entries_of(options, beside)
    for entry in entries:
        if entry not in beside:
            yield from backends.refusals(entry, phase)
    cluster = phase.spec.cluster
    if cluster is None or cluster.node is None or unfit:
        return
    counted = manifest.gpu_resource(cluster, options)
    if counted in options.resources:
        span = phase.origins.span("target.kubernetes.options.resources")
        said = f"`{counted}` follows from the file, which makes it {cluster.node.gpus} a node"
        yield error(UNFIT, said, span, "given twice", help=["it need not be given"])
    else:
        yield from brought(phase, options, entries)


def emit(
    phase: Phase, layout: Layout, sources: Mapping[str, Source], beside: Sequence[str] = ()
) -> Emission:
    """trainjob.yaml; where several entry points are asked for, one for each, called after it."""
    told = tuple(refusals(phase, beside))
    if any(said.severity is Severity.ERROR for said in told):
        return Emission({}, told)
    options = options_of(phase)
    entries = entries_of(options, beside)
    files: dict[str, str] = {}
    for entry in entries:
        code = backends.emitter(entry)(phase, layout, sources)
        told = tuple(dict.fromkeys((*told, *code.diagnostics)))
        if not code.files:
            return Emission({}, told)
        several = len(entries) > 1
        name = names.job_name(phase.origins.start.file, phase.name, entry if several else "")
        inside = {path: text for path, text in code.files.items() if path not in STARTERS}
        inside["start.sh"] = _start(phase, layout, options, entry)
        size = sum(len(path) + len(text.encode()) for path, text in inside.items())
        if size > MOST_BYTES:
            said = f"the code of this layout has {size:,} bytes; a ConfigMap holds {MOST_BYTES:,}"
            place = phase.origins.block("parallel")
            return Emission({}, (*told, error(UNFIT, said, place, "laid out by these degrees")))
        made = _manifest(phase, layout, options, entry, name, inside)
        objects = [manifest.config_map(made), manifest.train_job(made)]
        own = f"trainjob-{entry}.yaml" if several else "trainjob.yaml"
        files[own] = _header(phase, made, own) + documents(objects)
    return Emission(files, told)


def _manifest(
    phase: Phase,
    layout: Layout,
    options: Options,
    entry: str,
    name: str,
    files: Mapping[str, str],
) -> manifest.Manifest:
    cluster = phase.spec.cluster
    assert cluster is not None
    return manifest.Manifest(
        name=name,
        cluster=cluster,
        ranks=layout.world,
        options=options,
        files=files,
        env=_environment(phase, options, entry, name),
        claim=claim_of(phase, options),
    )


def _start(phase: Phase, layout: Layout, options: Options, entry: str) -> str:
    cluster = phase.spec.cluster
    assert cluster is not None
    # On several nodes tokens are made before, once.
    makes = entry != "megatron" and tokenizes(phase.spec) and cluster.nodes == 1
    return render(
        "kubernetes/start.sh.j2",
        {
            "name": Code(file_name(phase.origins)),
            "workspace": Code(shlex.quote(options.workspace)),
            "code": Code(manifest.CODE),
            "entry": entry,
            "tokenizes": makes,
            "several": layout.world > 1 or entry == "deepspeed",
            "resume": Code(" --resume" if entry == "deepspeed" and saves(phase.spec) else ""),
        },
    )


def _environment(phase: Phase, options: Options, entry: str, name: str) -> dict[str, str]:
    """What is set in every pod; the options have the last word."""
    cluster = phase.spec.cluster
    assert cluster is not None
    found: dict[str, str] = {}
    if entry == "megatron":
        # As its pretrain.sh has it.
        found |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if launch.one_queue(phase) else {}
    else:
        found["PARLAY_OUT"] = f"{options.workspace}/{name}"
    if entry == "torch" and saves(phase.spec):
        # A pod that is started again goes on from the last save.
        found["PARLAY_RESUME"] = "1"
    if entry == "deepspeed" and not has_gpus(cluster):
        found["DS_ACCELERATOR"] = "cpu"
    found |= dict(nccl(cluster)) if has_gpus(cluster) else {}
    return {**found, **options.env}


def _header(phase: Phase, made: manifest.Manifest, file: str) -> str:
    nodes = made.cluster.nodes
    machines = f"{nodes} nodes" if nodes > 1 else "1 node"
    ranks = f"{made.ranks} ranks" if made.ranks > 1 else "1 rank"
    lines = [
        f"Starts {file_name(phase.origins)} by Kubeflow Trainer: {ranks} on {machines}. "
        f"By Parlay {version_of_package('parlay')}.",
        f"`kubectl create -f {file}`; a job is never changed: delete it to start it anew.",
    ]
    if made.claim is not None:
        lines.append(f"The claim {made.claim} has to be there, and to be seen by every node.")
    return "".join(f"# {line}\n" for line in lines)
