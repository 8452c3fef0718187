"""The options of `target "accelerate"`: keys of its configuration that no field decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from parlay.compiler.spec.resolve import Phase

VERSIONS: Final = ("1.15",)
NEWEST: Final = VERSIONS[-1]
PLACE: Final = "target.accelerate.options."
TOP: Final = ""

ENGINES: Final = {"FSDP": "fsdp", "DEEPSPEED": "deepspeed", "MULTI_GPU": "ddp"}
"""What `distributed_type` may be asked for, where the layout leaves the choice."""

FREE: Final[Mapping[str, tuple[str, ...]]] = {
    TOP: (
        "debug",
        "enable_cpu_affinity",
        "gpu_ids",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "main_training_function",
        "rdzv_backend",
        "same_network",
    ),
    "fsdp_config": (
        "fsdp_activation_checkpointing_offload",
        "fsdp_auto_wrap_policy",
        "fsdp_cpu_ram_efficient_loading",
        "fsdp_min_num_params",
        "fsdp_state_dict_type",
        "fsdp_transformer_layer_cls_to_wrap",
    ),
    "deepspeed_config": (
        "deepspeed_exclusion_filter",
        "deepspeed_hostfile",
        "deepspeed_inclusion_filter",
        "deepspeed_moe_layer_cls_names",
        "deepspeed_multinode_launcher",
        "zero3_init_flag",
        "zero3_save_16bit_model",
    ),
    "dynamo_config": ("dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph"),
}
"""Section -> its keys that an option may set."""

GOVERNED: Final[Mapping[str, tuple[str, ...]]] = {
    TOP: ("mixed_precision", "num_machines", "num_processes", "use_cpu"),
    "fsdp_config": (
        "fsdp_activation_checkpointing",
        "fsdp_offload_params",
        "fsdp_reshard_after_forward",
        "fsdp_version",
    ),
    "deepspeed_config": (
        "gradient_accumulation_steps",
        "gradient_clipping",
        "offload_optimizer_device",
        "offload_param_device",
        "zero_stage",
    ),
    "parallelism_config": tuple(
        f"parallelism_config_{name}"
        for name in (
            "dp_replicate_size",
            "dp_shard_size",
            "tp_size",
            "cp_size",
            "cp_comm_strategy",
            "sp_size",
            "sp_backend",
            "sp_seq_length",
            "sp_seq_length_is_variable",
            "sp_attn_implementation",
        )
    ),
    "dynamo_config": ("dynamo_backend", "dynamo_use_regional_compilation"),
}
"""Section -> its keys that follow from fields of the file."""


def section_of(name: str) -> tuple[str, bool] | None:
    """The section of a key, and whether an option may set it; None for a key that is not known."""
    for table, free in ((FREE, True), (GOVERNED, False)):
        for section, keys in table.items():
            if name in keys:
                return section, free
    return None


def given(phase: Phase) -> Mapping[str, Any]:
    """The options as the file gives them."""
    target = phase.targets.get("accelerate")
    return (target.options if target else None) or {}
