"""All that the templates print: choices are made here and in the modules it joins."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.render import Code
from parlay.compiler.backends.slurm.batch import has_gpus
from parlay.compiler.backends.torch import copied, groups, model_code, train_code
from parlay.compiler.backends.torch.plan import tokenizes
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import comment, tuple_of

WIDTH: Final = 80


def context(structure: Structure) -> dict[str, Any]:
    """What the templates print; text is `Code`, values are values."""
    common: dict[str, Any] = {
        "name": Code(file_name(structure.phase.origins)),
        "at": structure.at,
        "rule": _rule,
        "note": comment,
        "mesh": structure.mesh,
        "tp": structure.tp,
        "pp": structure.pp,
        "dp": structure.dp,
        "sp": structure.sp,
        "class_name": Code(structure.class_name),
        "parameters": Code("plan: Plan, mesh: Mesh" if structure.model_meets else "plan: Plan"),
        "cut_parameters": Code("plan: Plan, mesh: Mesh" if structure.tp else "plan: Plan"),
        "arguments": Code("plan, mesh" if structure.model_meets else "plan"),
    }
    return {
        **common,
        **_mesh(structure),
        **model_code.context(structure),
        **train_code.context(structure),
        **_launch(structure),
    }


# ── mesh.py ───────────────────────────────────────────────────────────────────


def _mesh(structure: Structure) -> dict[str, Any]:
    axes, parallel = structure.axes, structure.parallel
    planes = groups.planes(structure)
    first = axes[0] if axes else ""
    experts = structure.expert_axes
    degrees = [*axes, *structure.dealt]
    fields = [structure.at(f"parallel.{axis}") for axis in structure.dealt]
    if experts and not fields:
        fields = [structure.at("model.experts.count")]
    return {
        "degrees": Code(", ".join(f"{axis} {getattr(parallel, axis)}" for axis in degrees)),
        "expert_order": _tuple(experts) if experts else None,
        "expert_fields": Code(", ".join(fields)),
        "neighbours": Code(f"neighbouring ranks share a {first} group"),
        "order": _tuple(axes),
        "parts": [Code(line) for line in copied.parts(structure)],
        "planes": Code(tuple_of([_tuple(plane) for plane in planes])) if planes else None,
        "planes_say": [Code(f"{name} is {says}") for name, says in groups.said(structure)],
        "planes_argument": Code(", planes=PLANES" if planes else ""),
    }


def _tuple(names: tuple[str, ...]) -> Code:
    return Code(tuple_of([f'"{name}"' for name in names]))


# ── launch.sh ─────────────────────────────────────────────────────────────────


def _launch(structure: Structure) -> dict[str, Any]:
    cluster = structure.phase.spec.cluster
    assert cluster is not None
    ranks, nodes = structure.layout.world, cluster.nodes
    return {
        "nodes": nodes,
        "gpus": cluster.node.gpus,
        "expands": (structure.gathers or structure.experts is not None) and has_gpus(cluster),
        "tokenizes": tokenizes(structure.phase.spec),
        "started": Code(
            f": {_count(ranks, 'rank')} on {_count(nodes, 'node')}. Run it once on every node."
            if structure.mesh
            else " in one process."
        ),
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _rule(title: str) -> Code:
    """The rest of a ruled line under `# ── title `."""
    return Code("─" * (WIDTH - len(title) - 6))
