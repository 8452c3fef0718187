"""What the cluster has to bring along, told once: image, claim, devices of the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from parlay.compiler.backends.kubernetes.manifest import kind_of_fabric, rdma
from parlay.compiler.backends.kubernetes.names import job_name
from parlay.compiler.backends.kubernetes.options import Options
from parlay.compiler.backends.torch.plan import saves
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, note

BROUGHT: Final = "B354"


CARRIED: Final = {"torch": "torch", "megatron": "Megatron-LM", "deepspeed": "DeepSpeed"}


def brought(phase: Phase, options: Options, entries: Sequence[str]) -> Iterator[Diagnostic]:
    """One note that names what no field and no option names."""
    cluster = phase.spec.cluster
    assert cluster is not None
    needs: list[str] = []
    if options.image is None:
        carries = [CARRIED[entry] for entry in entries]
        carries += ["parlay"] if set(entries) != {"megatron"} else []
        needs.append(
            f'an image with {" and ".join(carries)}: `image = "…"`, else the runtime\'s own'
        )
    if (claim := claim_of(phase, options)) is not None and options.claim is None:
        needs.append(f'the claim {claim}, seen by every node: `claim = "…"` names another')
    if rdma(cluster) and not any("/" in name for name in options.resources):
        kind = kind_of_fabric(cluster)
        needs.append(f'devices for {kind} in every pod: `resources = ["rdma/…=1"]`')
    if needs:
        yield note(
            BROUGHT,
            "the cluster has to bring what the file does not name",
            phase.origins.block("cluster"),
            "these machines",
            help=needs,
        )


def claim_of(phase: Phase, options: Options) -> str | None:
    """The claim that holds data and saves: as named, else called as the file; None for none.

    Paths that are absolute and outside of the workspace are the runtime's to mount.
    """
    if options.claim is not None:
        return options.claim
    data, saved, train = phase.spec.data, phase.spec.checkpoint.path, phase.spec.train
    # Without a path saves go below the workspace.
    weights = None if train is None else train.weights
    paths = (data.path, data.tokenizer, weights, saved or ("." if saves(phase.spec) else None))
    if any(path is not None and _inside(path, options.workspace) for path in paths):
        return job_name(phase.origins.start.file, "main")
    return None


def _inside(path: str, workspace: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() or pure.is_relative_to(workspace)
