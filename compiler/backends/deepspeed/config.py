"""ds_config.json: every key that a field of the file decides, and those that have to be chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.backends.deepspeed.options import PARAMS, TOP
from parlay.compiler.ledger.recipe import GRADIENT_BUCKET, microbatches
from parlay.compiler.spec.blocks import Parallel, Spec, Train
from parlay.compiler.spec.resolve import Phase

FP16: Final[Mapping[str, Any]] = {
    "auto_cast": False,
    "loss_scale": 0,
    "initial_scale_power": 16,
    "loss_scale_window": 1000,
    "hysteresis": 2,
    "consecutive_hysteresis": False,
    "min_loss_scale": 1,
}
"""The dynamic scale of the loss, as DeepSpeed starts it."""

STAGE_3: Final[Mapping[str, Any]] = {
    "sub_group_size": 1_000_000_000,
    "stage3_prefetch_bucket_size": GRADIENT_BUCKET,
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
    "stage3_gather_16bit_weights_on_model_save": False,
    "zero_hpz_partition_size": 1,
    "zero_quantized_weights": False,
    "zero_quantized_gradients": False,
}
"""How ZeRO-3 gathers: DeepSpeed's own figures, but for the bucket."""

RECOMPUTE: Final = (
    "partition_activations",
    "contiguous_memory_optimization",
    "cpu_checkpointing",
    "synchronize_checkpoint_boundary",
    "profile",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the configuration and the field of the file that it stands for.

    `chosen` marks what the back end chose where the file says nothing: `options` may replace it.
    """

    section: str
    name: str
    value: Any
    path: str = ""
    chosen: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Section and key."""
        return self.section, self.name


def entries(phase: Phase) -> Iterator[Entry]:
    """Every key of a phase that the back end can express, section after section."""
    spec = phase.spec
    train = spec.train
    assert train is not None
    yield from _batch(spec, train)
    yield from _services(spec)
    yield from _optimizer(spec, train)
    yield from _numbers(train)
    yield from _zero(spec.parallel)
    # Layers are computed again by model.py; nothing of it is cut, packed or moved.
    for name in RECOMPUTE:
        yield Entry("activation_checkpointing", name, False, "train.recompute")
    if spec.parallel.pp > 1:
        yield from _pipeline(spec.parallel)


def _batch(spec: Spec, train: Train) -> Iterator[Entry]:
    yield Entry(TOP, "train_batch_size", train.global_batch, "train.global_batch")
    yield Entry(TOP, "train_micro_batch_size_per_gpu", train.micro_batch, "train.micro_batch")
    yield Entry(TOP, "gradient_accumulation_steps", microbatches(spec), "train.global_batch")
    yield Entry(TOP, "gradient_clipping", float(train.clip), "train.clip")
    # Gradients are averaged after they were summed, in the dtype that they are summed in.
    wide = train.gradients == "fp32"
    dtype = "fp32" if wide else "bf16"
    yield Entry(TOP, "communication_data_type", dtype, "train.gradients")
    if spec.parallel.cp > 1:
        yield Entry(TOP, "seq_parallel_communication_data_type", dtype, "train.gradients")
    yield Entry("data_types", "grad_accum_dtype", dtype, "train.gradients")
    yield Entry(TOP, "prescale_gradients", False, chosen=True)
    yield Entry(TOP, "gradient_predivide_factor", 1.0, chosen=True)
    yield Entry(TOP, "zero_allow_untested_optimizer", False, chosen=True)


def _services(spec: Spec) -> Iterator[Entry]:
    yield Entry(TOP, "steps_per_print", spec.log.every, "log.every")
    yield Entry(TOP, "wall_clock_breakdown", False, chosen=True)
    if spec.log.tensorboard:
        yield Entry("tensorboard", "enabled", True, "log.tensorboard")
        yield Entry("tensorboard", "output_path", "tensorboard", chosen=True)
        yield Entry("tensorboard", "job_name", "train", chosen=True)


def _optimizer(spec: Spec, train: Train) -> Iterator[Entry]:
    optimizer, path = train.optimizer, "train.optimizer"
    yield Entry("optimizer", "type", "AdamW", path)
    yield Entry(PARAMS, "lr", optimizer["lr"], f"{path}.lr")
    yield Entry(PARAMS, "betas", list(optimizer["betas"]), f"{path}.betas")
    yield Entry(PARAMS, "eps", optimizer["eps"], f"{path}.eps")
    yield Entry(PARAMS, "weight_decay", optimizer["weight_decay"], f"{path}.weight_decay")
    yield Entry(PARAMS, "adam_w_mode", True, path)
    if on_cpus(spec):
        # DeepSpeed's own kernels are built for GPUs.
        yield Entry(PARAMS, "torch_adam", True, chosen=True)
    else:
        yield Entry(PARAMS, "bias_correction", True, path)
        yield Entry(PARAMS, "torch_adam", False, chosen=True)


def on_cpus(spec: Spec) -> bool:
    """Whether the ranks have no GPUs."""
    link = spec.cluster.node.link if spec.cluster else None
    return link is not None and link.kind == "shared_memory"


def _numbers(train: Train) -> Iterator[Entry]:
    path = "train.precision"
    yield Entry("bf16", "enabled", train.precision == "bf16", path)
    if train.precision == "bf16":
        yield Entry("bf16", "check_grad_overflow", True, chosen=True)
        yield Entry("bf16", "bf16_master_weights_and_grads", False, "train.master")
        yield Entry("bf16", "bf16_optimizer_states", False, "train.optimizer.states")
    yield Entry("fp16", "enabled", train.precision == "fp16", path)
    if train.precision == "fp16":
        yield Entry("fp16", "fp16_master_weights_and_grads", False, "train.master")
        for name, value in FP16.items():
            yield Entry("fp16", name, value, chosen=True)


def _zero(parallel: Parallel) -> Iterator[Entry]:
    section, zero = "zero_optimization", parallel.zero
    yield Entry(section, "stage", zero, "parallel.zero")
    if zero == 0:
        return
    # Its pipeline reduces when the last microbatch is through.
    yield Entry(section, "overlap_comm", parallel.overlap and parallel.pp == 1, "parallel.overlap")
    yield Entry(section, "reduce_bucket_size", GRADIENT_BUCKET, chosen=True)
    if zero == 3 and parallel.cp > 1:
        # Its reduce-scatter means over the pieces of a sequence, where it has to sum.
        yield Entry(section, "reduce_scatter", False, "parallel.cp")
    else:
        yield Entry(section, "reduce_scatter", True, chosen=True)
    yield Entry(section, "contiguous_gradients", True, chosen=True)
    if zero < 3:
        yield Entry(section, "allgather_partitions", True, chosen=True)
        yield Entry(section, "allgather_bucket_size", GRADIENT_BUCKET, chosen=True)
        yield Entry(section, "round_robin_gradients", False, chosen=True)
        yield Entry(section, "compute_grad_norm", True, "train.clip")
    else:
        for name, value in STAGE_3.items():
            yield Entry(section, name, value, chosen=True)
        # Weights of fewer elements than this would be held whole.
        yield Entry(section, "stage3_param_persistence_threshold", 0, chosen=True)
    for name in offloaded(parallel):
        inner = f"{section}.{name}"
        yield Entry(inner, "device", parallel.offload.name, "parallel.offload")
        yield Entry(inner, "pin_memory", True, chosen=True)


def offloaded(parallel: Parallel) -> tuple[str, ...]:
    """The sections of what leaves the GPU."""
    flags = parallel.offload.flags
    sections = {"optimizer": "offload_optimizer", "params": "offload_param"}
    return tuple(name for flag, name in sections.items() if flag in flags)


def _pipeline(parallel: Parallel) -> Iterator[Entry]:
    section = "pipeline"
    yield Entry(section, "stages", parallel.pp, "parallel.pp")
    # train.py says which layers a stage has, and model.py which of them are computed again.
    yield Entry(section, "partition", "type:Stage", "parallel.stages")
    yield Entry(section, "activation_checkpoint_interval", 0, "train.recompute")
    yield Entry(section, "seed_layers", False, chosen=True)
    yield Entry(section, "pipe_partitioned", False, chosen=True)
    yield Entry(section, "grad_partitioned", False, chosen=True)


# ── JSON ──────────────────────────────────────────────────────────────────────


def document(found: Iterable[Entry]) -> dict[str, Any]:
    """The entries as the nested object that DeepSpeed reads."""
    out: dict[str, Any] = {}
    for entry in found:
        section = out
        for part in entry.section.split(".") if entry.section else ():
            section = section.setdefault(part, {})
        section[entry.name] = entry.value
    return out


def dump(config: Mapping[str, Any]) -> str:
    """ds_config.json; it reads back as what was written."""
    text = json.dumps(config, indent=2, allow_nan=False)
    assert json.loads(text) == config
    return text + "\n"
