"""The pieces of train.py: what is built, summed and reported under this structure."""

from __future__ import annotations

from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.structure import Structure


def context(structure: Structure) -> dict[str, Any]:
    """What train.py.j2 prints."""
    train, parallel, at = structure.train, structure.parallel, structure.at
    tp, pp, dp, sp = structure.tp, structure.pp, structure.dp, structure.sp
    planes = [axis for axis in ("tp", "pp") if axis in structure.axes]
    norm = [f"over=job.mesh.{'_'.join(planes)}"] if planes else []
    norm += ["once=job.mesh.tp"] if tp else []
    writes = [f"mesh.pp.{'last'}"] if pp else []
    writes += [f"mesh.{axis}.first" for axis in ("dp", "tp") if axis in structure.axes]
    built = [at(f"parallel.{axis}") for axis in ("tp", "pp") if axis in structure.axes]
    return {
        "says": Code(_says(structure)),
        "computes": Code(
            train.precision + (" over fp32 masters" if train.master == "fp32" else "")
        ),
        "what_starts": Code("the ranks" if structure.mesh else "it"),
        "train_imports": [Code(line) for line in _imports(structure)],
        "built_for": Code(", ".join(built) or at("model.layers")),
        "device": Code("mesh.device" if structure.mesh else "device"),
        "cut_argument": Code(", cut=CUT" if tp else ""),
        "fill_arguments": Code(", cut=CUT, axis=mesh.tp" if tp else ""),
        "schedule": Code(parallel.schedule.name),
        "data_rank": Code("mesh.dp.rank" if dp else "0"),
        "data_ranks": Code("mesh.dp.size" if dp else "1"),
        "valid_axis": Code(", axis=mesh.dp" if dp else ""),
        "piece": Code("plan.batch.seq // mesh.tp.size" if sp else "plan.batch.seq"),
        "backward_says": Code(
            "Gradients summed over every axis; the mean loss of the global batch."
            if structure.mesh
            else "Gradients of the mean loss over all valid labels of the global batch."
        ),
        "plan_name": Code("plan" if pp else "job.plan"),
        "where": [Code(line) for line in _where(structure)],
        "lr_schedule": Code(train.lr_schedule.name),
        "clip": train.clip > 0,
        "before_clip": Code(" before they were clipped" if train.clip > 0 else ""),
        "norm_arguments": Code(", ".join(norm)),
        "writes": Code(" and ".join(writes)),
    }


def _where(structure: Structure) -> list[str]:
    """The device and, where anything is summed over an axis, the mesh."""
    if not structure.mesh:
        return ["device = job.device"]
    if "dp" in structure.axes or structure.sp:
        return ["mesh, device = job.mesh, job.mesh.device"]
    return ["device = job.mesh.device"]


def _says(structure: Structure) -> str:
    parallel = structure.parallel
    parts = []
    if "tp" in structure.axes:
        with_sequence = " with sequence parallelism" if structure.sp else ""
        parts.append(f"tp {parallel.tp}{with_sequence}")
    if "dp" in structure.axes:
        parts.append(f"dp {parallel.dp}")
    if "pp" in structure.axes:
        parts.append(f"pp {parallel.pp} by {parallel.schedule.name}")
    return ", ".join(parts) or "one process"


def _imports(structure: Structure) -> list[str]:
    tp, pp = "tp" in structure.axes, "pp" in structure.axes
    train = structure.train
    assert train is not None
    name = "Stage" if pp else "Model"
    lines = ["import torch"]
    lines += ["import torch.distributed as dist"] if structure.mesh else []
    lines += ["from mesh import build as build_mesh"] if structure.mesh else []
    lines += [f"from model import CUT, {name}" if tp else f"from model import {name}"]
    pieces = "init, pipeline, precision, timeline" if pp else "init, precision"
    lines += [f"from parlay.runtime import {pieces}"]
    lines += ["from parlay.runtime.data import Loader", "from parlay.runtime.log import Log"]
    lines += ["from parlay.runtime.loss import valid_labels"]
    lines += [f"from parlay.runtime.mesh import {'Mesh' if structure.mesh else 'own_device'}"]
    lines += ["from parlay.runtime.pipeline import Batch"]
    lines += ["from parlay.runtime.plan import Plan"]
    lines += [f"from parlay.runtime.schedule import {train.lr_schedule.name}"]
    lines += ["from parlay.runtime.shard import AdamW, Gradients"]
    lines += ["from parlay.runtime.timeline import Timeline"] if pp else []
    lines += ["from parlay.runtime.weights import Weights", "from torch import Tensor"]
    return lines
