"""Readable PyTorch training code on the thin runtime: one folder, one layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from parlay.compiler.backends import slurm
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.render import render
from parlay.compiler.backends.slurm.entries import job_of
from parlay.compiler.backends.torch.context import context
from parlay.compiler.backends.torch.plan import plan_of
from parlay.compiler.backends.torch.refusals import refusals as refusals_of
from parlay.compiler.backends.torch.refusals_data import without_data
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """Every field that asks for what there is no code for, and what is left open."""
    yield from refusals_of(phase)
    yield from without_data(phase)


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """The folder of a phase that passed its checks: code by structure, sizes in plan.json."""
    refused = tuple(refusals_of(phase))
    if refused:
        return Emission({}, refused)
    structure = Structure.of(phase, layout, sources)
    printed = context(structure)
    files = {
        "train.py": render("torch/train.py.j2", printed),
        "model.py": render("torch/model.py.j2", printed),
        "launch.sh": render("torch/launch.sh.j2", printed),
        "plan.json": dump(plan_of(phase, layout)),
    }
    if (batch := _batch(structure)) is not None:
        files["job.sbatch"] = batch
    if structure.mesh:
        files["mesh.py"] = render("torch/mesh.py.j2", printed)
    return Emission(files)


def _batch(structure: Structure) -> str | None:
    """job.sbatch, where there is a cluster to queue on."""
    phase = structure.phase
    if phase.spec.cluster is None or not slurm.needed(phase.spec.cluster):
        return None
    return slurm.script(job_of("torch", phase, structure.sources, folder=""))


def dump(plan: Mapping[str, object]) -> str:
    """plan.json: a section a line group, lists of numbers on one line."""
    sections = (f" {json.dumps(key)}: {_section(value)}" for key, value in plan.items())
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _section(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
    return json.dumps(value)
