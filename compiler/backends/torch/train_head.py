"""The head of train.py: what it says that it trains, and what it imports."""

from __future__ import annotations

import textwrap

from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.torch import copied, expert_state
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import WIDTH


def timelines(structure: Structure) -> str:
    """The module of the runtime that has the schedule."""
    return "timeline_split" if structure.splits else "timeline"


def opening(structure: Structure) -> str:
    """What is trained and how it is cut: one line where that fits, else two paragraphs."""
    name, says = file_name(structure.phase.origins), _says(structure)
    line = f"Trains {name}: {says}."
    if len(line) <= WIDTH - 3:
        return line
    return f"Trains {name}.\n\n" + textwrap.fill(f"The layout is {says}.", WIDTH)


def _says(structure: Structure) -> str:
    parallel = structure.parallel
    parts = []
    if "tp" in structure.axes:
        with_sequence = " with sequence parallelism" if structure.sp else ""
        parts.append(f"tp {parallel.tp}{with_sequence}")
    if structure.context:
        zero = "" if structure.dp else _zero(structure)
        parts.append(f"cp {parallel.cp} by {structure.context}{zero}")
    if structure.dp:
        parts.append(f"dp {parallel.dp}" + _zero(structure))
    parts += [f"{axis} {getattr(parallel, axis)}" for axis in structure.dealt]
    if "pp" in structure.axes:
        parts.append(f"pp {parallel.pp} by {parallel.schedule.name}")
    return ", ".join(parts) or "one process"


def _zero(structure: Structure) -> str:
    if not structure.zero:
        return ""
    copies = f" over {structure.parallel.shard} ranks each" if structure.replicates else ""
    return f" with ZeRO-{structure.parallel.zero}{copies}"


def imports(structure: Structure) -> list[str]:
    pp, train = structure.pp, structure.train
    assert train is not None
    name = "Stage" if pp else "Model"
    lines = ["import torch"]
    lines += ["import torch.distributed as dist"] if structure.mesh else []
    lines += ["from mesh import build as build_mesh"] if structure.mesh else []
    constants = sorted([*copied.names(structure), *expert_state.names(structure)])
    lines += [f"from model import {', '.join([*constants, name])}"]
    pieces = "context, " * bool(structure.context)
    pieces += f"init, pipeline, precision, {timelines(structure)}" if pp else "init, precision"
    pieces += ", validation" * structure.validates
    lines += [f"from parlay.runtime import {pieces}"]
    lines += ["from parlay.runtime.adapters import freeze"] if structure.adapted else []
    lines += ["from parlay.runtime.base import load_base"] if structure.based else []
    if structure.saves:
        lines += ["from parlay.runtime.checkpoint import Checkpoints"]
    if train.compile:
        lines += ["from parlay.runtime.compiled import compile_layers"]
    lines += ["from parlay.runtime.data import Loader"]
    lines += ["from parlay.runtime.gather import gather_on_use"] if structure.gathers else []
    needed = "Health" if structure.scaled else "Health, must_be_finite"
    lines += [f"from parlay.runtime.health import {needed}"]
    lines += ["from parlay.runtime.log import Log"]
    lines += ["from parlay.runtime.loss import valid_labels"]
    lines += [f"from parlay.runtime.mesh import {'Mesh' if structure.mesh else 'own_device'}"]
    names = sorted([structure.optimizer, *(["Steer"] if structure.steers else [])])
    lines += [f"from parlay.runtime.optimizer import {', '.join(names)}"]
    batch = "Batch, Chunks" if structure.chunked else "Batch"
    lines += expert_state.imports(structure)
    lines += [f"from parlay.runtime.pipeline import {batch}"]
    lines += ["from parlay.runtime.plan import Plan"]
    if structure.pretrained:
        lines += ["from parlay.runtime.pretrained import load_weights"]
    if structure.scatters:
        lines += ["from parlay.runtime.scatter import ScatteredGradients"]
    lines += ["from parlay.runtime.scaling import LossScale"] if structure.scaled else []
    lines += [f"from parlay.runtime.schedule import {train.lr_schedule.name}"]
    held = [] if structure.scatters else expert_state.buffers(structure)
    lines += [f"from parlay.runtime.shard import {', '.join(held)}"] if held else []
    lines += ["from parlay.runtime.stop import Stop"] if structure.saves else []
    lines += ["from parlay.runtime.timeline import Timeline"] if pp else []
    cut = structure.scatters or structure.gathers
    lines += ["from parlay.runtime.units import UnitWeights"] if cut else []
    names = ["Dealt"] if structure.experts is not None else []
    names += [] if structure.scatters else ["Weights"]
    lines += [f"from parlay.runtime.weights import {', '.join(names)}"] if names else []
    return [*lines, "from torch import Tensor"]
