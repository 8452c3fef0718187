"""What the templates print: train.py, model.py, launch.sh and hostfile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from parlay.compiler.backends.deepspeed import pipe_code, ulysses_code
from parlay.compiler.backends.deepspeed.config import on_cpus
from parlay.compiler.backends.fabric import exports
from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch import model_code
from parlay.compiler.backends.torch.plan import plan_of
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import WIDTH, comment
from parlay.compiler.layout import Layout
from parlay.compiler.layout.orders import dense_order
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.source import Source

AXES: Final = {"dp": "data", "pp": "pipe"}
"""The axes by DeepSpeed's names."""

ELSEWHERE: Final = ("spec", "dtypes", "clip", "buckets", "collectives", "health", "hugging_face")
"""What of a plan stands in ds_config.json, or is said of Parlay's own runtime."""


def structure_of(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Structure:
    """The structure of the model's code: whole matrices, one stage or several."""
    return Structure(phase, sources, layout, ("pp",) if phase.spec.parallel.pp > 1 else ())


def plan(phase: Phase, layout: Layout) -> dict[str, Any]:
    """The sizes that train.py and model.py read."""
    found = plan_of(phase, layout)
    found["log"].pop("tensorboard", None)  # the engine's own monitor writes its files
    return {name: value for name, value in found.items() if name not in ELSEWHERE}


def context(structure: Structure) -> dict[str, Any]:
    """What the templates print; text is `Code`, values are values."""
    common: dict[str, Any] = {
        "name": Code(file_name(structure.phase.origins)),
        "at": structure.at,
        "note": comment,
        "rule": lambda title: Code("─" * (80 - len(title) - 6)),
        "mesh": structure.mesh,
        "tp": False,
        "pp": structure.pp,
        "sp": False,
        "class_name": Code(structure.class_name),
        "parameters": Code("plan: Plan"),
        "cut_parameters": Code("plan: Plan"),
        "arguments": Code("plan"),
        "cp": structure.parallel.cp > 1,
        "tied": structure.tied_stages,
        "zero": structure.parallel.zero,
    }
    of_model = model_code.context(structure)
    if structure.pp:
        of_model |= pipe_code.context(structure)
    if structure.parallel.cp > 1:
        of_model |= ulysses_code.context(of_model)
    return {**common, **of_model, **_train(structure), **_launch(structure)}


# ── train.py ──────────────────────────────────────────────────────────────────


def _train(structure: Structure) -> dict[str, Any]:
    train, parallel, origins = structure.train, structure.parallel, structure.phase.origins
    fields = [f"checkpoint.{name}" for name in ("path", "every", "keep")]
    asked = [structure.at(f) for f in fields if origins.kind(f) is not Kind.DEFAULT]
    axes = [axis for axis in dense_order(parallel.order) if axis in AXES]
    return {
        "opening": Code(_opening(structure)),
        "computes": Code(
            train.precision + (" over fp32 masters" if train.master == "fp32" else "")
        ),
        "train_imports": [Code(line) for line in _imports(structure)],
        "saves": structure.saves,
        "saved_by": Code(", ".join(asked)),
        "start_argument": Code(", start=start" if structure.saves else ""),
        "steps": Code("start, plan.steps" if structure.saves else "plan.steps"),
        "lr_schedule": Code(train.lr_schedule.name),
        "axes": Code("[" + ", ".join(f'"{AXES[axis]}"' for axis in reversed(axes)) + "]"),
        # An axis of one rank is not in the plan.
        "dims": Code(", ".join(_degree(structure, axis) for axis in reversed(axes))),
        "parts": Code("Embedding | Stage" if structure.tied_stages else "Stage"),
        "shape_of": Code("parameter.ds_shape" if parallel.zero == 3 else "parameter.shape"),
        **_replicas(structure),
        "marks": structure.pp and parallel.zero == 0 and train.clip > 0,
        # Without ZeRO the engine clips fp32 gradients and keeps nothing of it.
        "norm": parallel.zero > 0 or train.precision != "fp32",
    }


def _replicas(structure: Structure) -> dict[str, Any]:
    """Over whom losses and labels are summed, and how many replicas they are."""
    if structure.parallel.cp == 1:
        group, replicas = "engine.data_parallel_group", "engine.dp_world_size"
    else:
        group, replicas = "engine.seq_data_parallel_group", 'plan.mesh.get("dp", 1)'
    sequences = Code(", mpu=ranks" if structure.parallel.cp > 1 else "")
    return {"group": Code(group), "replicas": Code(replicas), "sequences": sequences}


def _degree(structure: Structure, axis: str) -> str:
    return f'plan.mesh["{axis}"]' if getattr(structure.parallel, axis) > 1 else "1"


def _opening(structure: Structure) -> str:
    """What is trained and how it is cut: one line where that fits, else two paragraphs."""
    name, parallel = file_name(structure.phase.origins), structure.parallel
    parts = []
    zero = f" with ZeRO-{parallel.zero}" * (parallel.zero > 0)
    if parallel.cp > 1:
        parts.append(f"cp {parallel.cp} by {parallel.cp_method.name}")
    if parallel.dp > 1:
        parts.append(f"dp {parallel.dp}{zero}")
    if structure.pp:
        parts.append(f"pp {parallel.pp} by {parallel.schedule.name}")
    says = ", ".join(parts) or "one process"
    line = f"Trains {name} by DeepSpeed: {says}."
    return (
        line if len(line) <= WIDTH - 3 else f"Trains {name} by DeepSpeed.\n\nThe layout is {says}."
    )


def _imports(structure: Structure) -> list[str]:
    lines = []
    if structure.pp:
        pieces = "LayerSpec, PipelineModule" + (", TiedLayerSpec" * structure.tied_stages)
        lines += [f"from deepspeed.pipe import {pieces}"]
        lines += ["from deepspeed.runtime.pipe.topology import ProcessTopology"]
        classes = "Embedding, Stage" if structure.tied_stages else "Stage"
        lines += [f"from model import {classes}, loss"]
    else:
        lines += [ulysses_code.GROUPS] if structure.parallel.cp > 1 else []
        lines += ["from model import Model"]
    return [
        *lines,
        "from parlay.runtime import init",
        "from parlay.runtime.data import IGNORED, Loader",
        "from parlay.runtime.log import Log",
        "from parlay.runtime.plan import Plan",
        f"from parlay.runtime.schedule import {structure.train.lr_schedule.name}",
        *(["from parlay.runtime.stop import Stop"] if structure.saves else []),
        "from torch import Tensor, nn",
        "from torch.optim.lr_scheduler import LambdaLR",
    ]


# ── launch.sh, hostfile ───────────────────────────────────────────────────────


def _launch(structure: Structure) -> dict[str, Any]:
    cluster = structure.phase.spec.cluster
    assert cluster is not None
    return {
        "nodes": cluster.nodes,
        "gpus": cluster.node.gpus,
        "ranks": Code(_count(structure.layout.world, "rank")),
        "machines": Code(_count(cluster.nodes, "node")),
        "on_cpus": on_cpus(structure.phase.spec),
        "exports": [Code(line) for line in exports(cluster)],
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
