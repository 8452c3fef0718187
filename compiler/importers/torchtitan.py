"""torchtitan to `.par`: the function that returns a `Trainer.Config`, or TOML; never run."""

from __future__ import annotations

import re
from math import lcm
from pathlib import Path
from typing import Any, Final

from parlay.compiler.backends.torchtitan.options import NEWEST, sections
from parlay.compiler.backends.torchtitan.settings import SCHEDULES
from parlay.compiler.catalog import load
from parlay.compiler.importers import titan_config
from parlay.compiler.importers.python_calls import Called, shown
from parlay.compiler.importers.titan_config import READ
from parlay.compiler.importers.titan_model import model
from parlay.compiler.importers.titan_recipe import Sections, is_number, recipe, services, whole
from parlay.compiler.importers.written import (
    Draft,
    Imported,
    listing,
    string,
    switch,
    value,
)

NODE: Final = "dgx-h100"
BLOCKS: Final = ("model", "cluster", "parallel", "train", "data", "checkpoint", "log")
FLAVOUR: Final = re.compile(r'model from "([^"]+)"')
WORLD: Final = re.compile(r"for torchtitan [\d.]+, by Parlay [^:]*: (\d+) ranks? on (\d+) node")


def read(path: Path, *, gpus: int | None = None, node: str = NODE) -> Imported:
    """The job of a configuration; raises `Unreadable` with the reason where it gives none.

    Of a module with several jobs, `FILE.py::NAME` takes one.
    """
    given, text = titan_config.read(path)
    draft = Draft(f"From {path.name}, a run of torchtitan.", {name: {} for name in BLOCKS})
    draft.blocks["target torchtitan"] = {}
    draft.heads["target torchtitan"] = 'target "torchtitan"'
    draft.assumed += given.assumed
    config, found = given.config, _sections(given.config)
    world = WORLD.search(text)
    model(given, draft)
    parallel = found["parallelism"]
    degrees = _degrees(parallel)
    nodes = _cluster(draft, degrees, gpus, node, world)
    _parallel(draft, parallel, degrees, nodes)
    _stages(draft, parallel)
    recipe(given.module, config, draft, found, degrees)
    _positions(draft)
    services(config, draft, found)
    _rest(draft, found)
    _around(draft, config, found)
    draft.lost += given.lost
    if not draft.blocks["target torchtitan"]:
        del draft.blocks["target torchtitan"], draft.heads["target torchtitan"]
    return draft.finished()


def _sections(config: Called) -> Sections:
    """The sections of plain settings."""
    given = {name: config.keywords.get(name) for name in sections(NEWEST)}
    return {n: dict(call.keywords) if isinstance(call, Called) else {} for n, call in given.items()}


def _positions(draft: Draft) -> None:
    """As many positions as tokens: torchtitan makes its table for the sequence that is trained."""
    named = FLAVOUR.fullmatch(draft.heads.get("model", ""))
    preset = load("model", named[1]) if named else None
    context = preset.values["model"].get("context") if preset else None
    seq = int(draft.blocks["train"]["seq"])
    if isinstance(context, int) and seq > context:
        draft.set("model.context", str(seq))
        draft.assumed.append(f"context = {seq}: the positions of a run of that seq")


# ── Degrees ───────────────────────────────────────────────────────────────────


def _degrees(parallel: dict[str, Any]) -> dict[str, int]:
    names = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
    found = {axis: whole(parallel, f"{name}_parallel_degree", 1) for axis, name in names.items()}
    found["copies"] = whole(parallel, "data_parallel_replicate_degree", 1)
    found["cut"] = whole(parallel, "data_parallel_shard_degree", -1)
    return found


def _cluster(
    draft: Draft,
    degrees: dict[str, int],
    gpus: int | None,
    node: str,
    written: re.Match[str] | None,
) -> int:
    """The number of GPUs."""
    inside = degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["copies"]
    nodes = None
    if gpus is None and written is not None:
        gpus, nodes = int(written[1]), int(written[2])
    if gpus is None:
        gpus = inside * max(1, degrees["cut"])
        if degrees["cut"] < 0:
            # The least number that dense layers and experts fit on.
            unit = lcm(inside, degrees["pp"] * degrees["ep"])
            gpus = -(-max(gpus, 8) // unit) * unit
        draft.assumed.append(f"{gpus} GPUs: their number is not given")
    each = gpus // nodes if nodes else min(gpus, 8)
    draft.assumed.append(f'node from "{node}": the kind of machine is not given')
    draft.set("cluster.nodes", str(nodes or -(-gpus // each)))
    body = "" if each == 8 else f" {{ gpus = {each} }}"
    draft.set("cluster.@node", f"node from {string(node)}{body}")
    if gpus > each:
        draft.set("cluster.@fabric", "fabric { kind = infiniband }")
    return gpus


def _parallel(draft: Draft, parallel: dict[str, Any], degrees: dict[str, int], world: int) -> None:
    for axis in ("tp", "pp", "cp", "ep"):
        draft.set(f"parallel.{axis}", str(degrees[axis]))
    inside = degrees["tp"] * degrees["pp"] * degrees["cp"]
    replicas = max(1, world // inside)
    cut = degrees["cut"] if degrees["cut"] > 0 else max(1, replicas // degrees["copies"])
    degrees["dp"] = replicas
    draft.set("parallel.dp", str(replicas))
    sequence = parallel.pop("enable_sequence_parallel", True)
    if degrees["tp"] > 1:
        draft.set("parallel.sequence_parallel", switch(sequence is True))
    again = parallel.pop("fsdp_reshard_after_forward", "default")
    keeps = again == "never" or (again == "default" and degrees["pp"] > 1)
    sharded = cut * degrees["cp"] > 1
    # Between one rank there is nothing to shard; what the file says of it is kept all the same.
    zero = (2 if keeps else 3) if sharded or again == "always" else 0
    draft.set("parallel.zero", str(zero))
    if zero and cut < replicas:
        draft.set("parallel.shard", str(cut * degrees["cp"]))
    if (etp := whole(parallel, "expert_tensor_parallel_degree", 1)) > 1:
        draft.set("parallel.etp", str(etp))
    if degrees["cp"] > 1:
        draft.set("parallel.cp_method", "allgather")
    if parallel.pop("pipeline_parallel_schedule_csv", None):
        draft.lost.append("pipeline_parallel_schedule_csv")


def _stages(draft: Draft, parallel: dict[str, Any]) -> None:
    if draft.blocks["parallel"]["pp"] == "1":
        return
    given = parallel.pop("pipeline_parallel_schedule", "1F1B")
    names = {name: ours for ours, name in SCHEDULES.items()}
    schedule = names.get(given if isinstance(given, str) else "")
    if schedule is None:
        draft.lost.append(f"pipeline_parallel_schedule {given}: one_f_one_b is written")
        schedule = "one_f_one_b"
    counts = _counts(parallel.pop("module_fqns_per_model_part", None))
    pp = int(draft.blocks["parallel"]["pp"])
    if not counts:
        counts = _dealt(draft, parallel, pp, 1 if schedule in ("gpipe", "one_f_one_b") else 2)
    if schedule == "interleaved":
        chunks = max(2, len(counts) // pp)
        schedule = f"interleaved(chunks = {chunks})"
    draft.set("parallel.schedule", schedule)
    if counts and len(set(counts)) > 1:
        draft.set("parallel.stages", listing(map(str, counts)))


def _dealt(draft: Draft, parallel: dict[str, Any], pp: int, each: int) -> list[int]:
    """Layers of each stage, as torchtitan deals them out where no list of them is given.

    Embedding and head count as a layer each, unless they are given another weight.
    """
    named = draft.heads.get("model", "").split('"')[1:2]
    preset = load("model", named[0]) if named else None
    layers = int((preset.values["model"] if preset else draft.blocks["model"])["layers"])
    first = whole(parallel, "pipeline_parallel_first_stage_less_layers", 1)
    last = whole(parallel, "pipeline_parallel_last_stage_less_layers", 1)
    width = parallel.pop("pipeline_parallel_layers_per_stage", None)
    total = layers + first + last
    stages = -(-total // width) if isinstance(width, int) and width > 0 else pp * each
    counts = [total // stages + (stage < total % stages) for stage in range(stages)]
    counts[0], counts[-1] = counts[0] - first, counts[-1] - last
    if stages % pp or min(counts) < 1:
        draft.lost.append(f"{stages} stages of {layers} layers: equal ones are written")
        return []
    return counts


def _counts(stages: Any) -> list[int]:
    """Layers of each stage: of lists of names, or of calls `layers(first, last)`."""
    counts: list[int] = []
    for stage in stages if isinstance(stages, list) else ():
        parts = stage if isinstance(stage, list) else [stage]
        layers = 0
        for part in parts:
            if isinstance(part, Called) and part.name == "layers" and len(part.arguments) == 2:
                layers += part.arguments[1] - part.arguments[0] + 1
            elif isinstance(part, str) and part.startswith("layers."):
                layers += 1
        counts.append(layers)
    return counts


# ── What is left ──────────────────────────────────────────────────────────────


def _rest(draft: Draft, found: Sections) -> None:
    """Everything that no field takes: options of the target, and comments where none may stand."""
    every = [name for names in sections(NEWEST).values() for name in names]
    for section, fields in found.items():
        for name, given in fields.items():
            if name not in sections(NEWEST)[section]:
                draft.lost.append(f"{section}.{name} = {shown(given)}: no field of it")
                continue
            key = name if every.count(name) == 1 else f"{section}_{name}"
            if isinstance(given, bool):
                text = switch(given)
            elif isinstance(given, list) and given and all(isinstance(i, str) for i in given):
                text = listing(map(value, given))
            elif isinstance(given, str) or (is_number(given) and given >= 0):
                text = value(str(given))
            else:
                draft.lost.append(f"{section}.{name} = {shown(given)}")
                continue
            draft.set(f"target torchtitan.options.{key}", text)


def _around(draft: Draft, config: Called, found: Sections) -> None:
    """What else a job is made of, as comments."""
    for name, given in config.keywords.items():
        if name not in READ and name not in found and given is not None:
            draft.lost.append(f"{name} = {shown(given)}")
