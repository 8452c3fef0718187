"""plan.json: the sizes and the predicted collectives that emitted code reads."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final

from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.torch import hugging_face, plan_model
from parlay.compiler.layout import Layout
from parlay.compiler.ledger import communication, communication_context, flops, held, recipe
from parlay.compiler.spec.blocks import Checkpoint, Model, Spec
from parlay.compiler.spec.blocks.calibration import Calibration
from parlay.compiler.spec.resolve import Phase
from parlay.compiler.spec.schema import Setting

HEALTH: Final = {
    "wait": 480,
    "spike": {"loss": 1.5, "grad_norm": 10.0, "window": 32},
    "straggler": {"every": 50, "beyond": 1.5},
}
"""Seconds without a microbatch that end a run, below the ten minutes after which NCCL ends it
without a word of who; jumps over the median of the last steps, and ranks beside their peers, that
are told. No field of the language says them."""


LOSS_SCALE: Final = {"initial": 65536.0, "window": 2000, "least": 1.0}
"""Where the scale of an fp16 loss starts, the steps after which it doubles, where it ends."""
OPTIMIZER: Final = ("lr", "betas", "eps", "momentum", "weight_decay")


def plan_of(
    phase: Phase,
    layout: Layout,
    *,
    axes: tuple[str, ...] | None = None,
    of_experts: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """The plan of a phase; `docs/emitted.md` says what each part means.

    `axes` are those that the code has, `of_experts` those of the experts' grid, by default the ones
    above 1.
    """
    spec = phase.spec
    model, train, parallel, cluster = spec.model, spec.train, spec.parallel, spec.cluster
    assert model is not None and train is not None and cluster is not None
    dtypes = recipe.dtypes_of(spec)
    sizes = {axis: getattr(parallel, axis) for axis in axes or mesh_axes(phase)}
    if of_experts is None:
        of_experts = expert_axes(phase, layout)
    plan: dict[str, Any] = {
        "version": 1,
        "parlay": version("parlay"),
        "source": file_name(phase.origins),
        "phase": phase.name,
        "mesh": sizes,
        **({"expert_mesh": _expert_mesh(layout, of_experts)} if of_experts else {}),
        "model": {
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "ffn": model.ffn,
            "vocab": model.vocab,
            "padded_vocab": held.padded_vocab(spec),
            "norm_eps": model.norm_eps,
            "context": model.context,
            "rotary_dim": plan_model.rotary_dim(model),
            "rope_theta": plan_model.rope_theta(model, train),
            "logits_cap": model.softcap["logits"] if model.softcap else 0.0,
            **plan_model.attention(model, train),
            **plan_model.experts_of(model),
        },
        "stages": [
            {
                "stage": stage.stage,
                "chunk": stage.chunk,
                "layers": [stage.first, stage.last],
                "embedding": stage.embedding,
                "head": stage.head,
            }
            for stage in layout.stages
        ],
        "batch": {
            "seq": train.seq,
            "micro_batch": train.micro_batch,
            "microbatches": recipe.microbatches(spec),
            "global_batch": train.global_batch,
        },
        "dtypes": {
            "compute": dtypes.compute,
            "gradients": dtypes.gradients,
            "master": dtypes.master,
            "optimizer": dtypes.optimizer,
        },
        "optimizer": _optimizer(train.optimizer),
        "lr_schedule": dict(train.lr_schedule.options),
        **({"loss_scale": LOSS_SCALE} if train.precision == "fp16" else {}),
        "clip": train.clip,
        "init": {"std": model.init_std},
        "seed": train.seed,
        "steps": steps_of(phase),
        "data": {
            "format": spec.data.format,
            "path": spec.data.path,
            **({"tokenizer": spec.data.tokenizer} if tokenizes(spec) else {}),
            **({} if spec.data.shuffle else {"shuffle": False}),
            **({} if spec.data.packing else {"packing": False}),
            **({"validation": _validation(spec)} if spec.data.validation else {}),
        },
        "log": {
            "every": spec.log.every,
            **({"tensorboard": True} if spec.log.tensorboard else {}),
        },
        "health": HEALTH,
        **({"lora": _lora(train.lora)} if train.lora is not None else {}),
        **({} if train.weights is None else {"weights": train.weights}),
        **_family(spec, model),
        **({"checkpoint": _checkpoint(spec.checkpoint)} if saves(spec) else {}),
        **({"recompute": some} if (some := _recomputed(train.recompute)) else {}),
        **({"shard": parallel.shard} if replicates(spec) else {}),
        **({"cp_inner": communication_context.dealt(parallel)} if rings_outside(spec) else {}),
        "buckets": {"gradients": recipe.GRADIENT_BUCKET},
        "peak_flops": flops.peak(cluster.node.gpu, train.precision),
        "flops_per_token": flops.per_token(spec),
        "collectives": [asdict(row) for row in communication.step(spec, layout)],
    }
    measured = cluster.calibration
    said = {"calibration": asdict(measured)} if measured and measured != Calibration() else {}
    plan["spec"] = hashlib.sha256(json.dumps(plan | said, sort_keys=True).encode()).hexdigest()
    return plan


def _lora(lora: Setting) -> dict[str, Any]:
    """Rank and scale of adapters, and the save of what they adapt where there is one."""
    return {name: value for name, value in lora.options.items() if value is not None}


def _family(spec: Spec, model: Model) -> dict[str, Any]:
    """What Hugging Face calls the model, where weights are read or saved that it may have too."""
    try:
        config = hugging_face.config_of(model)
    except hugging_face.Unnamed:
        return {}
    train = spec.train
    assert train is not None
    based = train.lora is not None and train.lora["base"] is not None
    return {"hugging_face": config} if train.weights or based or saves(spec) else {}


COPIES: Final = {"replicate": "edp_replicate"}
"""An axis of the experts' grid in emitted code -> in a layout of several copies of the state: the
ranks at the same place of each copy are those of all else."""


def _expert_mesh(layout: Layout, axes: tuple[str, ...]) -> dict[str, int]:
    assert layout.expert is not None
    grid = layout.expert
    if "replicate" in axes:
        assert layout.sharded_expert is not None
        grid = layout.sharded_expert
    return {
        axis: grid.size(name) if (name := COPIES.get(axis, axis)) in grid.axes else 1
        for axis in axes
    }


def replicates(spec: Spec) -> bool:
    """Whether the replicas share several copies of the training state between them (HSDP)."""
    parallel = spec.parallel
    return parallel.zero > 0 and 1 < parallel.dp * parallel.cp != parallel.shard


def rings_outside(spec: Spec) -> bool:
    """Whether sequences are cut twice: over ranks that deal heads out, and over a ring of them."""
    return spec.parallel.cp > 1 and spec.parallel.cp_method.name == "ulysses_ring"


def tokenizes(spec: Spec) -> bool:
    """Whether text is made tokens of before training; tokens that are there need no tokenizer."""
    return spec.data.format == "text" and spec.data.tokenizer is not None


def saves(spec: Spec) -> bool:
    """Whether the file asks for checkpoints, by any field of the block."""
    asked = spec.checkpoint
    return any((asked.path, asked.every, asked.keep, asked.asynchronous))


def _optimizer(optimizer: Setting) -> dict[str, Any]:
    """Its numbers; dtypes stand in `dtypes`, the rest in the code."""
    numbers = {name: optimizer.get(name) for name in OPTIMIZER}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in numbers.items()
        if value is not None
    }


def _recomputed(recompute: Setting) -> dict[str, int]:
    """Which layers of a stage are computed again, where not all are."""
    return {name: number for name, number in recompute.options.items() if number is not None}


VALIDATED: Final = 8
"""Global batches that are looked at each time, where as many are held out."""


def _validation(spec: Spec) -> dict[str, Any]:
    """The share held out, and how often and how much of it is looked at."""
    every = spec.checkpoint.every
    return {"share": spec.data.validation, "batches": VALIDATED, "every": every}


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "path": checkpoint.path or "checkpoints",
        "every": checkpoint.every,
        "keep": checkpoint.keep,
        "asynchronous": bool(checkpoint.asynchronous),
    }


def expert_axes(phase: Phase, layout: Layout) -> tuple[str, ...]:
    """The axes of the experts' grid that emitted code has: those above 1, pp among them.

    Empty where there are no experts, or every rank holds all of them by itself.
    """
    assert phase.spec.model is not None
    if phase.spec.model.experts is None or layout.expert is None:
        return ()
    grid, names = layout.expert, {name: axis for axis, name in COPIES.items()}
    if replicates(phase.spec) and layout.sharded_expert is not None:
        grid = layout.sharded_expert
    above = tuple(names.get(axis, axis) for axis in grid.axes if grid.size(axis) > 1)
    return above if set(above) - {"pp", "replicate"} else ()


def mesh_axes(phase: Phase) -> tuple[str, ...]:
    """The axes above 1 in the file's order, fastest first."""
    parallel = phase.spec.parallel
    rest = [axis for axis in ("tp", "cp", "dp", "pp") if axis not in parallel.order]
    order = [axis for axis in (*parallel.order, *rest) if axis != "ep"]
    return tuple(axis for axis in order if getattr(parallel, axis) > 1)


def steps_of(phase: Phase) -> int:
    """Steps to train: as given, or what the token budget comes to, rounded up."""
    train = phase.spec.train
    assert train is not None
    if train.steps is not None:
        return train.steps
    assert train.tokens is not None, "refused without either"
    return -(-train.tokens // (train.global_batch * train.seq))
