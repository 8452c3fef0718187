"""The sections of `Trainer.Config` as values: what each field of the file sets in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from parlay.compiler.backends.complete import steps_of
from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torchtitan.options import NEWEST, place_of
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.recipe import microbatches
from parlay.compiler.spec.blocks import Spec, Train
from parlay.compiler.spec.resolve import Phase

SCHEDULES: Final = {
    "gpipe": "GPipe",
    "one_f_one_b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zbv": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
OFF: Final = Code('float("inf")')
"""The norm to which gradients are scaled where clipping is off."""

Section = dict[str, Any]


def sections(phase: Phase) -> dict[str, Section]:
    """Every section by name, with what the file's options set besides."""
    spec = phase.spec
    train = spec.train
    assert train is not None
    found = {
        "training": _training(phase, spec, train),
        "parallelism": _parallelism(spec),
        "checkpoint": _checkpoint(phase, spec),
        "metrics": {"log_freq": spec.log.every, "enable_tensorboard": spec.log.tensorboard},
        "compile": {"enable": train.compile},
        "debug": {"seed": train.seed},
        "comm": {},
    }
    for (section, field), value in passed(phase).items():
        found[section].setdefault(field, value)
    return {name: section for name, section in found.items() if section}


def passed(phase: Phase) -> Mapping[tuple[str, str], Any]:
    """The options of the target by section and field; those that have no place are left out."""
    target = phase.targets.get("torchtitan")
    options: Mapping[str, Any] = (target.options if target else None) or {}
    placed = ((place_of(name, NEWEST), value) for name, value in options.items())
    return {
        place: list(value) if isinstance(value, tuple) else value
        for place, value in placed
        if place
    }


def _training(phase: Phase, spec: Spec, train: Train) -> Section:
    pipeline = spec.parallel.pp > 1
    whole = train.precision == "bf16" and train.master == "none"
    return {
        # With a pipeline it is what one step passes through it, in pieces.
        "local_batch_size": train.micro_batch * (microbatches(spec) if pipeline else 1),
        "global_batch_size": train.global_batch,
        "seq_len": train.seq,
        "max_norm": train.clip or OFF,
        "steps": steps_of(phase),
        "dtype": "bfloat16" if whole else "float32",
        "mixed_precision_param": "float32" if train.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": spec.parallel.offload.name == "cpu",
        "disable_cuda_graphs": pipeline or spec.parallel.ep > 1,
    }


def _parallelism(spec: Spec) -> Section:
    parallel = spec.parallel
    cut = parallel.shard // parallel.cp if parallel.zero else 1
    found: Section = {
        "data_parallel_replicate_degree": parallel.dp // cut,
        "data_parallel_shard_degree": cut,
        "fsdp_reshard_after_forward": "always" if parallel.zero == 3 else "never",
        "tensor_parallel_degree": parallel.tp,
        "enable_sequence_parallel": parallel.sequence_parallel,
        "pipeline_parallel_degree": parallel.pp,
        "context_parallel_degree": parallel.cp,
        "expert_parallel_degree": parallel.ep,
    }
    if parallel.pp > 1:
        train = spec.train
        assert train is not None
        found["pipeline_parallel_schedule"] = SCHEDULES[parallel.schedule.name]
        found["pipeline_parallel_microbatch_size"] = train.micro_batch
        found["module_fqns_per_model_part"] = Code("STAGES")
    return found


def _checkpoint(phase: Phase, spec: Spec) -> Section:
    checkpoint = spec.checkpoint
    if checkpoint.path is None:
        return {"enable": False}
    found: Section = {"enable": True, "folder": checkpoint.path}
    # Told of no interval, it saves every 500 steps.
    found["interval"] = checkpoint.every or steps_of(phase)
    found["keep_latest_k"] = checkpoint.keep or 0
    found["async_mode"] = "async" if checkpoint.asynchronous else "disabled"
    found["last_save_model_only"] = False
    return found


def stages(layout: Layout) -> list[Code]:
    """The modules of each stage, in the order in which a microbatch passes them, as code."""
    out: list[Code] = []
    for stage in layout.stages:
        inside = f"layers({stage.first}, {stage.last})"
        if stage.embedding:
            out.append(Code(f'["tok_embeddings", *{inside}]'))
        elif stage.head:
            out.append(Code(f'[*{inside}, "norm", "lm_head"]'))
        else:
            out.append(Code(inside))
    return out


def lr_schedule(train: Train, steps: int) -> Section:
    """The section of the learning rate."""
    schedule, peak = train.lr_schedule, train.optimizer["lr"]
    found: Section = {"warmup_steps": schedule["warmup"]}
    match schedule.name:
        case "constant":
            return {**found, "decay_ratio": 0.0}
        case "wsd":
            found |= {"decay_ratio": schedule["decay"] / steps, "decay_type": "linear"}
        case name:
            found["decay_type"] = name
    return {**found, "min_lr_factor": schedule["min_lr"] / peak if peak else 0.0}
