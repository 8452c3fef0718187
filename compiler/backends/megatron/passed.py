"""Options of the `target` block: written through, unless they contradict a field of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from parlay.compiler.backends.megatron.argument import Argument, Piece, text
from parlay.compiler.backends.megatron.options import Option, by_dest, table
from parlay.compiler.spec.blocks import Target
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import error, warning
from parlay.dsl.nearest import nearest

UNKNOWN: Final = "B312"
CONTRADICTS: Final = "B313"
PLACE: Final = "target.megatron.options."

GOVERNED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("add_bias_linear", "add_qkv_bias"), "model.bias"),
    **dict.fromkeys(("swiglu", "squared_relu", "quick_geglu", "openai_gelu"), "model.activation"),
    "activation_func_clamp_value": "model.glu_clamp",
    "glu_linear_offset": "model.glu_offset",
    **dict.fromkeys(("group_query_attention", "num_query_groups"), "model.kv_heads"),
    "qk_layernorm": "model.qk_norm",
    "softmax_type": "model.sinks",
    **dict.fromkeys(("window_size", "window_attn_skip_freq"), "model.window"),
    "multi_latent_attention": "model.mla",
    "mtp_num_layers": "model.mtp_layers",
    "untie_embeddings_and_output_weights": "model.tied_embeddings",
    "rotary_seq_len_interpolation_factor": "model.rope",
    **dict.fromkeys(("rotary_base", "rotary_percent"), "model.rope"),
    **dict.fromkeys(
        (
            *("use_rope_scaling", "rope_scaling_factor", "rotary_scaling_factor", "rope_type"),
            *("mscale", "mscale_all_dim", "yarn_original_max_position_embeddings"),
            *("yarn_beta_fast", "yarn_beta_slow", "yarn_correction_range_round_to_int"),
        ),
        "model.rope_scaling",
    ),
    "num_experts": "model.experts",
    "moe_shared_expert_intermediate_size": "model.experts.shared",
    "moe_shared_expert_gate": "model.experts.shared_gate",
    "moe_router_enable_expert_bias": "model.experts.router_bias",
    "moe_router_num_groups": "model.experts.groups",
    "moe_router_group_topk": "model.experts.top_groups",
    "moe_router_topk_scaling_factor": "model.experts.scale",
    "moe_aux_loss_coeff": "model.experts.aux_loss",
    "moe_z_loss_coeff": "model.experts.z_loss",
    "moe_expert_capacity_factor": "model.experts.capacity",
    "sequence_parallel": "parallel.sequence_parallel",
    "cp_comm_type": "parallel.cp_method",
    "hierarchical_context_parallel_sizes": "parallel.cp_method",
    "use_tp_pp_dp_mapping": "parallel.order",
    "use_distributed_optimizer": "parallel.zero",
    **dict.fromkeys(("use_megatron_fsdp", "use_torch_fsdp2"), "parallel.zero"),
    "data_parallel_sharding_strategy": "parallel.zero",
    **dict.fromkeys(("overlap_grad_reduce", "overlap_param_gather"), "parallel.overlap"),
    "num_distributed_optimizer_instances": "parallel.shard",
    "optimizer_cpu_offload": "parallel.offload",
    "num_layers_per_virtual_pipeline_stage": "parallel.schedule",
    "num_virtual_stages_per_pipeline_rank": "parallel.schedule",
    "pipeline_model_parallel_layout": "parallel.stages",
    "decoder_first_pipeline_num_layers": "parallel.stages",
    "decoder_last_pipeline_num_layers": "parallel.stages",
    **dict.fromkeys(("fp16", "bf16", "fp8", "fp4", "fp4_recipe"), "train.precision"),
    "accumulate_allreduce_grads_in_fp32": "train.gradients",
    "grad_reduce_in_bf16": "train.gradients",
    **dict.fromkeys(("exp_avg_dtype", "exp_avg_sq_dtype"), "train.optimizer.states"),
    **dict.fromkeys(("train_samples", "train_iters"), "train.steps"),
    "rampup_batch_size": "train.global_batch",
    "min_lr": "train.lr_schedule.min_lr",
    **dict.fromkeys(
        ("lr_warmup_iters", "lr_warmup_fraction", "lr_warmup_samples"), "train.lr_schedule.warmup"
    ),
    **dict.fromkeys(
        ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"),
        "train.recompute",
    ),
    "recompute_activations": "train.recompute",
    "save": "checkpoint.path",
    "save_interval": "checkpoint.every",
    "async_save": "checkpoint.async",
}
"""What a field of the file decides even where it leads to no argument: dest -> the field."""


def merged(
    phase: Phase, target: Target, arguments: Sequence[Argument], version: str
) -> Iterator[Piece]:
    """The arguments with the block's options over what the back end chose itself."""
    options: Mapping[str, Any] = target.options or {}
    passed: dict[str, Argument] = {}
    for name, value in options.items():
        for piece in _passed(phase, name, value, arguments, version):
            if isinstance(piece, Argument):
                passed[_dest(piece.option, version)] = piece
            else:
                yield piece
    for argument in arguments:
        replaced = passed.pop(_dest(argument.option, version), None) if argument.chosen else None
        if replaced is None:
            yield argument
        elif replaced.values != ("off",):
            yield replaced
    yield from (argument for argument in passed.values() if argument.values != ("off",))


def _dest(option: str, version: str) -> str:
    known = table(version).get(option)
    return known.dest if known else option


def _passed(
    phase: Phase, name: str, value: Any, arguments: Sequence[Argument], version: str
) -> Iterator[Piece]:
    """One option of the block; a flag that is to be off comes out with the value `off`."""
    written = f"--{name.replace('_', '-')}"
    origin = phase.origins.get(PLACE + name)
    span = origin.span if origin else phase.origins.block("target.megatron")
    option = _option(written, name.replace("-", "_"), value, version)
    if option is None:
        close = nearest(written, list(table(version)))
        said = f"Megatron-LM {version} has no option {written}"
        help = [f"nearest: {', '.join(close)}"] if close else []
        yield warning(UNKNOWN, said, span, "written through as it stands", help=help)
        yield from _as_it_stands(written, value, name)
        return
    values = _values(option, value)
    if values is None:
        takes = "no value: `on` or `off`" if option.flag else "a value"
        yield error(CONTRADICTS, f"{written} takes {takes}", span, "of another kind")
        return
    same = [one for one in arguments if _dest(one.option, version) == option.dest]
    fixed = [one for one in same if not one.chosen]
    if fixed:
        if any(one.values != values or one.option != option.name for one in fixed):
            yield _contradiction(phase, written, fixed[0].path, span)
        return
    off = values == ("off",) or (option.kind == "off" and value is True)
    if not same and option.dest in GOVERNED and not off:
        yield _contradiction(phase, written, GOVERNED[option.dest], span)
        return
    yield Argument(option.name, values, PLACE + name)


def _option(written: str, dest: str, value: Any, version: str) -> Option | None:
    """The option that sets `dest` to `value`, by its own name or by what it sets."""
    found = table(version).get(written)
    if found is not None:
        return found
    for option in by_dest(version).get(dest, ()):
        if not option.flag or (option.kind == "on") == (value is True):
            return option
    return next(iter(by_dest(version).get(dest, ())), None)


def _values(option: Option, value: Any) -> tuple[str, ...] | None:
    if option.flag:
        if not isinstance(value, bool):
            return None
        sets = value if option.name.startswith(_NEGATIVE) or option.kind == "on" else not value
        return () if sets else ("off",)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, tuple):
        return tuple(map(text, value)) if option.kind == "list" else None
    return (text(value),)


_NEGATIVE: Final = ("--no-", "--disable-")


def _as_it_stands(written: str, value: Any, name: str) -> Iterator[Argument]:
    path = PLACE + name
    match value:
        case bool():
            yield Argument(written, () if value else ("off",), path)
        case tuple():
            yield Argument(written, tuple(map(text, value)), path)
        case _:
            yield Argument(written, (text(value),), path)


def _contradiction(phase: Phase, written: str, path: str, span: Any) -> Piece:
    origin = phase.origins.get(path)
    shown = f"{path} = {origin.shown}" if origin else f"{path} is absent"
    place, words = phase.origins.label(path, f"the field, {shown}")
    return error(
        CONTRADICTS,
        f"{written} contradicts `{path}`",
        span,
        "another answer to the same question",
        also=[(place, words)],
        help=["the field decides; the option may go"],
    )
