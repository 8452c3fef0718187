"""DeepSpeed to `.par`: ds_config.json, and the launch script and hostfile around it, never run.

A configuration names no model and no length of a sequence. They come from the command line where
it has them, else from `--model`; a job without a model is written without one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from parlay.compiler import catalog
from parlay.compiler.importers import deepspeed_config as keys
from parlay.compiler.importers import deepspeed_fork, hf
from parlay.compiler.importers import deepspeed_recipe as recipe
from parlay.compiler.importers.deepspeed_config import Config
from parlay.compiler.importers.deepspeed_files import Job, find
from parlay.compiler.importers.deepspeed_plan import cp_of, from_plan
from parlay.compiler.importers.deepspeed_rest import TARGET, rest, without_options
from parlay.compiler.importers.folder import within
from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.hf_job import put
from parlay.compiler.importers.written import Draft, Imported, string

NODE: Final = "dgx-h100"
BLOCKS: Final = ("model", "cluster", "parallel", "train", "data", "checkpoint", "log")
LENGTHS: Final = (
    "seq-length",
    "max-seq-length",
    "max-seq-len",
    "model-max-length",
    "block-size",
    "sequence-length",
    "cutoff-len",
    "max-length",
)
"""What scripts call the length of a sequence."""

OF_THE_ENGINE: Final = (
    "deepspeed",
    "deepspeed-config",
    "ds-config",
    "deepspeed-config-file",
    "local-rank",
    "no-local-rank",
    "resume",
)
"""Options of a script that say nothing of the job."""


def read(
    path: Path, *, gpus: int | None = None, node: str = NODE, model: str | None = None
) -> Imported:
    """The job of a configuration, a script or a folder; raises `Unreadable` with the reason.

    `model` is the name of a catalog's model, or the path of a Hugging Face `config.json`.
    """
    job = find(path)
    title = f"From {path.name}, a run of DeepSpeed."
    if "num-layers" in job.script:
        return deepspeed_fork.drafted(job, title, gpus=gpus, node=node).finished()
    draft = Draft(title, {name: {} for name in BLOCKS})
    draft.blocks[TARGET] = {}
    draft.heads[TARGET] = 'target "deepspeed"'
    config = Config(job, draft)
    degrees = keys.degrees(config)
    if job.plan:
        degrees["cp"] = cp_of(job.plan)
    world = _world(job, gpus)
    inside = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if world and world[0] * world[1] % inside:
        job.lost.append(f"{world[0]} nodes of {world[1]} GPUs: not for {inside} ranks a replica")
        world = None
    dp = world[0] * world[1] // inside if world else None
    _model(job, draft, model)
    _, _, dp = keys.batch(config, draft, dp)
    _cluster(draft, world, dp * inside, node, job)
    for axis, size in degrees.items():
        if size > 1:
            draft.set(f"parallel.{axis}", str(size))
    if degrees["tp"] > 1:
        draft.set("parallel.sequence_parallel", "off")
    if degrees["cp"] > 1:
        draft.set("parallel.cp_method", "ulysses")
    draft.set("parallel.dp", str(dp))
    keys.sharding(config, draft)
    _recipe(job, config, draft, degrees["pp"])
    rest(config, draft)
    _arguments(job, draft)
    draft.lost += job.lost
    return without_options(draft).finished()


def _recipe(job: Job, config: Config, draft: Draft, pp: int) -> None:
    length = _whole(job.argument(*LENGTHS)) or 2048
    if not job.plan and not any(name in job.script for name in LENGTHS):
        draft.assumed.append("seq = 2048: no length of a sequence is given")
    draft.set("train.seq", str(length))
    recipe.numbers(config, draft, pp=pp)
    rate = recipe.optimizer(config, draft)
    steps = job.plan.get("steps") or _whole(job.argument("max-steps", "train-steps"))
    recipe.schedule(config, draft, rate, steps if isinstance(steps, int) else None)
    recipe.log(config, draft)
    recipe.saves(config, draft)
    if job.flag("gradient-checkpointing", "activation-checkpointing", "checkpoint-activations"):
        draft.set("train.recompute", "full")
    seed = _whole(job.argument("seed"))
    if seed is not None:
        draft.set("train.seed", str(seed))
    if job.plan:
        from_plan(job.plan, job.code, draft)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


# ── Model ─────────────────────────────────────────────────────────────────────


def _model(job: Job, draft: Draft, given: str | None) -> None:
    """The model as given, else by its name on the command line, else none."""
    named = job.argument("model-name-or-path", "model-name", "model")
    if given is not None:
        if given in catalog.names("model"):
            draft.heads["model"] = f"model from {string(given)}"
            return
        path = Path(given)
        if not path.exists():
            raise Unreadable(f"--model {given} is no model of the catalog, and no file")
        config = within(path, "config.json") if path.is_dir() else path
        preset, further = hf.read_all(config)
        put(draft, "model", preset.values["model"])
        draft.lost += further
        return
    known = {_plain(name): name for name in catalog.names("model")}
    name = known.get(_plain(named.rstrip("/").rpartition("/")[2])) if named else None
    if name is not None:
        draft.assumed.append(f'model from "{name}", by its name {named}')
        draft.heads["model"] = f"model from {string(name)}"
        return
    said = f"the name {named} is of no model of the catalog" if named else "no file names a model"
    draft.assumed.append(f"no model: {said}; `--model` takes one")


def _plain(name: str) -> str:
    """`Llama-2-7b-hf` --> `llama27b`"""
    short = name.lower().removeprefix("meta-")
    short = re.sub(r"(-(hf|base|instruct|chat|it|v0\.\d))+$", "", short)
    return re.sub(r"[^a-z0-9]", "", short)


# ── Machines ──────────────────────────────────────────────────────────────────


def _world(job: Job, gpus: int | None) -> tuple[int, int] | None:
    """Nodes, and ranks of each; None where nothing says so."""
    if gpus is not None:
        return -(-gpus // min(gpus, 8)), min(gpus, 8)
    slots = sorted(set(job.hosts.values()))
    each = _number(job, ("num-gpus", "nproc-per-node"), ("GPUS_PER_NODE", "NPROC_PER_NODE"))
    nodes = _number(job, ("num-nodes", "nnodes"), ("NNODES", "NUM_NODES", "SLURM_NNODES"))
    if slots:
        if len(slots) > 1:
            job.lost.append(f"hosts with {', '.join(map(str, slots))} slots: the fewest")
        return nodes or len(job.hosts), each or slots[0]
    if each is None and nodes is None:
        return None
    return nodes or 1, each or 8


def _number(job: Job, options: tuple[str, ...], names: tuple[str, ...]) -> int | None:
    found = [(job.launcher.get(option) or [""])[0] for option in options]
    found += [job.environment.get(name, "") for name in names]
    return next((size for text in found if (size := _whole(text))), None)


def _cluster(draft: Draft, world: tuple[int, int] | None, ranks: int, node: str, job: Job) -> None:
    if world is None:
        world = -(-ranks // min(ranks, 8)), min(ranks, 8)
        draft.assumed.append(f"{ranks} GPUs: their number follows from the batch, or is not given")
    nodes, each = world
    draft.assumed.append(f'node from "{node}": the kind of machine is not given')
    draft.set("cluster.nodes", str(nodes))
    inside = "" if each == 8 else f" {{ gpus = {each} }}"
    draft.set("cluster.@node", f"node from {string(node)}{inside}")
    if nodes > 1:
        draft.set("cluster.@fabric", "fabric { kind = infiniband }")
    for name in ("include", "exclude", "i", "e"):
        for given in job.launcher.get(name, ()):
            draft.lost.append(f"--{name} {given}: every host is counted")


# ── What is left ──────────────────────────────────────────────────────────────


def _arguments(job: Job, draft: Draft) -> None:
    """Options of the script that nothing took, as comments."""
    for option, values in job.script.items():
        if option not in job.taken and option not in OF_THE_ENGINE:
            draft.lost.append(f"argument of the script: --{' '.join((option, *values))}"[:300])
