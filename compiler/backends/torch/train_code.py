"""The pieces of train.py: what is built, summed and reported under this structure."""

from __future__ import annotations

from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch import copied, expert_state, train_head, train_weights
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call
from parlay.compiler.spec.origins import Kind


def context(structure: Structure) -> dict[str, Any]:
    """What train.py.j2 prints."""
    train, parallel, at = structure.train, structure.parallel, structure.at
    tp, pp = structure.tp, structure.pp
    zero, chunked = structure.zero, structure.chunked
    norm = [f"over=job.mesh.{owners}"] if (owners := structure.owners) else []
    norm += ["once=job.mesh.tp"] if tp else []
    norm += ["replicas=job.mesh.replicate"] if structure.replicates else []
    norm += expert_state.norm(structure)
    norm += ["alike=job.mesh.mirror"] if structure.mirrored else []
    end = "first" if structure.folded else "last"  # which rank of a pipeline has the loss
    ends = "mesh.pp.first or mesh.pp.last" if structure.mirrored else f"mesh.pp.{end}"
    writes = [f"mesh.pp.{end}"] if pp else []
    writes += [f"mesh.{axis}.first" for axis in ("dp", "cp", "tp") if axis in structure.axes]
    built = [at(f"parallel.{axis}") for axis in ("tp", "cp", "pp") if axis in structure.axes]
    built += [at("train.lora")] if structure.adapted else []
    plan_name = "plan" if pp else "job.plan"
    gradients = "job.gradients.common" if structure.parted else "job.gradients"
    return {
        "opening": Code(train_head.opening(structure)),
        "computes": Code(
            train.precision + (" over fp32 masters" if train.master == "fp32" else "")
        ),
        "what_starts": Code("the ranks" if structure.mesh else "it"),
        "train_imports": [Code(line) for line in train_head.imports(structure)],
        "built_for": Code(", ".join(built) or at("model.layers")),
        "device": Code("mesh.device" if structure.mesh else "device"),
        "zero": zero,
        "steers": structure.steers,
        "keeps_weights": zero or structure.expert_zero,
        "parted": [Code(line) for line in expert_state.gradients(structure)],
        "experts_reduced": Code(expert_state.reduced(structure, plan_name)),
        "experts_reduced_for": Code(expert_state.reduced_for(structure)),
        "model_class": Code("Chunks" if chunked else structure.class_name),
        "gradients_class": Code(_gradients(structure)),
        "weights_class": Code(train_weights.weights_class(structure)),
        "shares_whole": structure.sp or (structure.tp and structure.adapted),
        "whole_says": Code(
            f"{at('train.lora')}: a rank has a share of the gradients of what tp leaves whole."
            if structure.adapted
            else f"{at('parallel.sequence_parallel')}: "
            "norms have seen a piece of the sequence each."
        ),
        "based": structure.based,
        "keeps_frozen": structure.keeps_frozen,
        "frozen_class": Code(train_weights.frozen_class(structure)),
        "gathered": Code(structure.gathered),
        "scatters": structure.scatters,
        "gathers": structure.gathers,
        "replicates": structure.replicates,
        "overlap": Code("" if parallel.overlap else ", overlap=False"),
        "scattered": [Code(line) for line in _scattered(structure)],
        "shard_axis": Code(f"mesh.{structure.shard_axis}"),
        "all_gather": Code(_all_gather(structure)),
        "gathers_again": bool(_all_gather(structure)) and (structure.saves or structure.pretrained),
        "gathered_again": Code(_all_gather(structure).replace("job.mesh", "mesh")),
        "model_built": [Code(line) for line in train_weights.model_built(structure)],
        "weights_built": [Code(line) for line in train_weights.weights_built(structure)],
        "filled": [Code(line) for line in train_weights.filled(structure)],
        "shared": [tuple(map(Code, pair)) for pair in copied.summed(structure)],
        "last_stage": Code(ends),
        "mirrored": structure.mirrored,
        "copies_reduced": [
            Code(f"{part}.all_reduce(axis=mesh.mirror, bucket={plan_name}.buckets.gradients)")
            for part in ((gradients, "job.gradients.experts") if structure.parted else (gradients,))
        ],
        "schedule": Code(f"{train_head.timelines(structure)}.{parallel.schedule.name}"),
        "timeline_arguments": Code(
            "mesh.pp.size, len(model.stages), plan.batch.microbatches"
            if chunked and not (structure.folded or structure.mirrored)
            else "mesh.pp.size, plan.batch.microbatches"
        ),
        "stages": Code("job.model.stages" if chunked else "[job.model]"),
        "reduced": Code(
            f"{gradients}.reduce_scatter(axis=mesh.{structure.shard_axis})"
            if zero
            else f"{gradients}.all_reduce("
            f"axis=mesh.{structure.batch_axis}, bucket={plan_name}.buckets.gradients)"
        ),
        "replicated": [
            Code(f"{part}.all_reduce(axis=mesh.replicate, bucket={plan_name}.buckets.gradients)")
            for part in ((gradients, "job.gradients.experts") if structure.parted else (gradients,))
        ],
        "loader": [Code(line) for line in _loader(structure)],
        "batch_axis": Code(structure.batch_axis),
        "cut_over": Code(structure.batch_axis.replace("_", " and ")),
        "of_batch": Code(", ".join([*map(at, _of_batch(structure)), at("parallel.zero")])),
        "valid_axis": Code(f", axis=mesh.{structure.batch_axis}" if structure.batch_axis else ""),
        "sent_shape": [Code(line) for line in _shape(structure, "shape=(", indent=8, after="),")],
        "backward_says": Code(
            "Gradients summed over every axis; the mean loss of the global batch."
            if structure.mesh
            else "Gradients of the mean loss over all valid labels of the global batch."
        ),
        "where": [Code(line) for line in _where(structure)],
        "lr_schedule": Code(train.lr_schedule.name),
        "compiles": train.compile,
        "scaled": structure.scaled,
        "offloaded": Code(
            f",\n    # {structure.at('parallel.offload')}" if structure.offloads else ""
        ),
        "scaled_up": Code(".double() / job.scale.value" if structure.scaled else ""),
        "scaled_down": Code(
            "None if loss is None else loss / job.scale.value" if pp else "loss / job.scale.value"
        ),
        "optimizer_class": Code(structure.optimizer),
        "optimizer_arguments": [Code(argument) for argument in _optimizer(structure)],
        "clip": train.clip > 0,
        "before_clip": Code(" before they were clipped" if train.clip > 0 else ""),
        "norm_arguments": Code(", ".join(norm)),
        **_validation(structure),
        **_loop(structure),
        "writes": Code(" and ".join(writes)),
    }


def _validation(structure: Structure) -> dict[str, Any]:
    """The forwards of what is held out."""
    mesh = "mesh, plan = job.mesh, job.plan" if structure.pp else "mesh = job.mesh"
    device = "mesh.device" if structure.mesh else "job.device"
    axis = f", axis=mesh.{structure.batch_axis}" if structure.batch_axis else ""
    lines = [mesh] if structure.mesh else []
    if structure.pp:
        stages = "job.model.stages" if structure.chunked else "[job.model]"
        lines += [
            *_shape(structure, "shape = (", indent=4),
            f"stages = {stages}",
            "forward = pipeline.forwards(job.timeline, stages=stages, axis=mesh.pp, shape=shape)",
        ]
    else:
        lines += [f"forward = validation.of_model(job.model, {device})"]
    lines += [f"return validation.mean(forward, job.data.held(), device={device}{axis})"]
    return {
        "validates": structure.validates,
        "validated_type": Code("Tensor | None"),
        "validated": [Code(line) for line in lines],
    }


def _loop(structure: Structure) -> dict[str, Any]:
    """Saves and the log."""
    origins = structure.phase.origins
    fields = [f"checkpoint.{name}" for name in ("path", "every", "keep", "async")]
    asked = [structure.at(f) for f in fields if origins.kind(f) is not Kind.DEFAULT]
    start = ", start=start" if structure.saves else ""
    writes = "writes" if structure.mesh else "True"
    scale = ", scale=job.scale" if structure.scaled else ""
    return {
        "saves": structure.saves,
        "stop_device": Code("mesh.device" if structure.mesh else "job.device"),
        "reads_alone": structure.pretrained and not structure.saves,
        "pretrained": [Code(line) for line in _pretrained(structure)],
        "base_arguments": Code(", tp=mesh.tp" if structure.tp else ""),
        "saved_by": Code(", ".join(asked)),
        "saves_arguments": Code(
            ", tp=mesh.tp" * structure.tp + ", scale=job.scale" * structure.scaled
        ),
        "log_arguments": Code(f"writes={writes}, folder=folder{start}{scale}"),
        "health_arguments": Code(
            f"writes={writes}, device={'mesh.device' if structure.mesh else 'job.device'}"
        ),
        "steps": Code("start, job.plan.steps" if structure.saves else "job.plan.steps"),
    }


def _pretrained(structure: Structure) -> list[str]:
    """What reads the weights that training starts from, where it does not go on from a save."""
    if not structure.pretrained:
        return []
    arguments = ["job.plan", "job.optimizer", *["tp=mesh.tp"] * structure.tp]
    if not structure.saves:
        return call("load_weights(", arguments, indent=4)
    lines = call("load_weights(", arguments, indent=8)
    return ["if start == 0:", *(f"    {line}" for line in lines)]


def _loader(structure: Structure) -> list[str]:
    """What gives a rank its samples, and of each of them its tokens."""
    dp = structure.dp
    arguments = ["plan", f"rank={'mesh.dp.rank' if dp else 0}"]
    arguments += [f"ranks={'mesh.dp.size' if dp else 1}"]
    if structure.context:
        deal = "head_tail" if structure.head_tail else "piece"
        arguments += [f"own=context.{deal}(plan.batch.seq, axis=mesh.cp)"]
    return call("data=Loader(", arguments, indent=8, after="),")


def _shape(structure: Structure, before: str, *, indent: int, after: str = ")") -> list[str]:
    """What travels between stages."""
    sizes = ["plan.batch.micro_batch", _piece(structure), "plan.model.hidden"]
    return call(before, sizes, indent=indent, after=after)


def _piece(structure: Structure) -> str:
    """The tokens of a sequence in it."""
    cuts = [f"mesh.{axis}.size" for axis in structure.sequence_axes]
    by = f"({' * '.join(cuts)})" if len(cuts) > 1 else "".join(cuts)
    return f"plan.batch.seq // {by}" if cuts else "plan.batch.seq"


def _of_batch(structure: Structure) -> list[str]:
    """The degrees that share a global batch."""
    return [f"parallel.{axis}" for axis in structure.batch_axis.split("_") if axis]


def _optimizer(structure: Structure) -> list[str]:
    """What an optimizer is made with beside weights, gradients and dtypes."""
    if structure.optimizer == "SGD":
        names = ["momentum", "weight_decay"]
    else:
        names = ["betas", "eps", "weight_decay"]
    kahan = structure.train.optimizer.get("kahan")
    arguments = [f"{name}=plan.optimizer.{name}" for name in names]
    return [*arguments, *["kahan=True"] * bool(kahan), *["host=True"] * structure.offloads]


def _gradients(structure: Structure) -> str:
    if structure.parted:
        return "GradientParts"
    if structure.scatters:
        return "ScatteredGradients"
    return "ShardedGradients" if structure.zero else "Gradients"


def _scattered(structure: Structure) -> list[str]:
    arguments = ["weights", "dtype=precision.dtype(plan.dtypes.gradients)"]
    arguments += [] if structure.parallel.overlap else ["overlap=False"]
    return call("gradients = ScatteredGradients(", arguments, indent=4)


def _all_gather(structure: Structure) -> str:
    """What makes weights whole after an update; empty where they never are between steps."""
    if structure.parted:
        return expert_state.all_gather(structure)
    if (structure.gathers and not structure.adapted) or not structure.zero:
        return ""
    axis = "" if structure.scatters else f"axis=job.mesh.{structure.shard_axis}"
    return f"job.weights.all_gather({axis})"


def _where(structure: Structure) -> list[str]:
    """The device and, where anything is summed over an axis, the mesh."""
    if not structure.mesh:
        return ["device = job.device"]
    whole = structure.sp or (structure.tp and structure.adapted)
    if structure.batch_axis or whole or structure.edp or any(copied.shares(structure)):
        return ["mesh, device = job.mesh, job.mesh.device"]
    return ["device = job.mesh.device"]
