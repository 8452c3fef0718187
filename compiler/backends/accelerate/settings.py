"""accelerate.yaml as plain data: the engine that a layout asks for, and its sections."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.backends.accelerate.options import ENGINES, TOP, given, section_of
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.recipe import microbatches
from parlay.compiler.spec.blocks import Parallel, Spec, Train
from parlay.compiler.spec.resolve import Phase

TYPES: Final = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED", "ddp": "MULTI_GPU", "single": "NO"}
"""Engine -> `distributed_type`."""

PREFIX: Final = "parallelism_config_"
METHODS: Final = {"ring": "alltoall", "allgather": "allgather"}
"""How keys and values reach every rank of cp: torch calls the ring by its collective."""

Section = dict[str, Any]


def engine_of(phase: Phase, layout: Layout) -> str:
    """`fsdp`, `deepspeed`, `ddp` or `single`: as asked for, else what has the layout's sharding.

    ZeRO-1, parts of the state on the host, and heads that are dealt over cp are DeepSpeed's alone;
    ZeRO 2 and 3 are FSDP's.
    """
    asked = ENGINES.get(str(given(phase).get("distributed_type")))
    if asked is not None:
        return asked
    parallel = phase.spec.parallel
    offload = parallel.offload
    part = offload.name != "none" and set(offload.flags) != {"optimizer", "params"}
    ulysses = parallel.cp > 1 and parallel.cp_method.name == "ulysses"
    if parallel.zero == 1 or part or offload.name == "nvme" or ulysses:
        return "deepspeed"
    if parallel.zero:
        return "fsdp"
    return "ddp" if layout.world > 1 else "single"


def configuration(phase: Phase, layout: Layout) -> Section:
    """The whole configuration, its keys in the order in which they are written."""
    spec = phase.spec
    train, cluster = spec.train, spec.cluster
    assert train is not None and cluster is not None
    engine = engine_of(phase, layout)
    found: Section = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": TYPES[engine],
        "num_machines": cluster.nodes,
        "num_processes": layout.world,
        "mixed_precision": precision(train),
        "use_cpu": False,
    }
    if cluster.nodes > 1:
        # Nodes find their ranks by themselves: every one of them is started alike.
        found["rdzv_backend"] = "c10d"
    if engine == "fsdp":
        found["fsdp_config"] = _fsdp(spec.parallel, train)
    if engine == "deepspeed":
        found["deepspeed_config"] = _deepspeed(spec, train, several=cluster.nodes > 1)
    if sizes := _parallelism(spec.parallel, train, engine):
        found["parallelism_config"] = {f"{PREFIX}{name}": value for name, value in sizes.items()}
    if train.compile:
        found["dynamo_config"] = {
            "dynamo_backend": "INDUCTOR",
            "dynamo_use_regional_compilation": True,
        }
    for name, value in given(phase).items():
        place = section_of(name)
        if place is None or not place[1]:
            continue
        section, value = place[0], list(value) if isinstance(value, tuple) else value
        (found if section == TOP else found.setdefault(section, {}))[name] = value
    return found


def precision(train: Train) -> str:
    """`mixed_precision`: weights that are held in bf16 alone are the script's to make."""
    return "no" if train.precision == "fp32" or train.master == "none" else train.precision


def _fsdp(parallel: Parallel, train: Train) -> Section:
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": parallel.zero == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": parallel.offload.name == "cpu",
        "fsdp_activation_checkpointing": train.recompute.name == "full",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _deepspeed(spec: Spec, train: Train, *, several: bool) -> Section:
    offload = spec.parallel.offload
    found: Section = {
        "zero_stage": spec.parallel.zero,
        "gradient_accumulation_steps": microbatches(spec),
        "gradient_clipping": float(train.clip),
        "offload_optimizer_device": offload.name if "optimizer" in offload.flags else "none",
        "offload_param_device": offload.name if "params" in offload.flags else "none",
    }
    if several:
        # Started on every node by whoever schedules, not over ssh from the first.
        found["deepspeed_multinode_launcher"] = "standard"
    return found


def _parallelism(parallel: Parallel, train: Train, engine: str) -> Section:
    """The degrees beyond plain data parallelism, whose product is the number of ranks."""
    if engine == "deepspeed":
        if parallel.cp == 1:
            return {}
        return {
            **_sizes(1, parallel.dp, parallel, sp=parallel.cp),
            "sp_backend": "deepspeed",
            "sp_seq_length": train.seq,
            "sp_seq_length_is_variable": False,
            "sp_attn_implementation": "flash_attention_2" if train.attention == "flash" else "sdpa",
        }
    if engine == "fsdp":
        cut = max(1, parallel.shard // parallel.cp)
        found = _sizes(max(1, parallel.dp // cut), cut, parallel, cp=parallel.cp)
        if parallel.cp > 1:
            found["cp_comm_strategy"] = METHODS.get(parallel.cp_method.name, "allgather")
        return found
    return _sizes(1, 1, parallel) if parallel.tp > 1 else {}


def _sizes(copies: int, cut: int, parallel: Parallel, *, cp: int = 1, sp: int = 1) -> Section:
    return {
        "dp_replicate_size": copies,
        "dp_shard_size": cut,
        "tp_size": parallel.tp,
        "cp_size": cp,
        "sp_size": sp,
    }
