"""Builds Megatron-Core's GPT model on the meta device from arguments, and counts its parameters.

Reads one JSON object a line, `{"world": 64, "arguments": ["--num-layers", "4", …]}`; degrees are
set to 1, so that one rank holds the whole model. Answers `{"parameters": …}` or `{"why": "…"}`.
"""

import contextlib
import io
import json
import os
import sys
import warnings

import megatron_env
import torch
import torch.distributed as dist

# Nothing is run: a stream is asked for and never used, and a buffer stands where the weights do.
torch.cuda.Stream = lambda *_, **__: None
torch.cuda.current_device = lambda: "meta"

SPLIT = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
)
STAGES = (
    "--num-virtual-stages-per-pipeline-rank",
    "--num-layers-per-virtual-pipeline-stage",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--pipeline-model-parallel-layout",
    "--microbatch-group-size-per-virtual-pipeline-stage",
)
FLAGS = ("--sequence-parallel", "--overlap-p2p-communication-warmup-flush", "--moe-extended-tp")


def whole(words):
    """The arguments of the same model on one rank."""
    kept, index = [], 0
    while index < len(words):
        word = words[index]
        values = 1
        while index + values < len(words) and not words[index + values].startswith("--"):
            values += 1
        if word in SPLIT:
            kept += [word, "1"]
        elif word == "--transformer-impl":
            kept += [word, "local"]
        elif word not in STAGES and word not in FLAGS:
            kept += words[index : index + values]
        index += values
    return kept


def without_channels(function):
    """The plain attention core holds no weights, whatever the widths of its heads."""

    def changed(*args, k_channels=None, v_channels=None, **named):
        return function(*args, **named)

    return changed


def count(arguments):
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_decoder_block_spec,
        get_gpt_mtp_block_spec,
    )
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.training.arguments import (
        core_transformer_config_from_args,
        parse_args,
        validate_args,
    )

    if not hasattr(DotProductAttention, "changed"):
        DotProductAttention.__init__ = without_channels(DotProductAttention.__init__)
        DotProductAttention.changed = True
    megatron_env.with_transformer_engine()
    os.environ["WORLD_SIZE"] = "1"
    for name in ("FLASH", "FUSED", "UNFUSED"):
        os.environ.pop(f"NVTE_{name}_ATTN", None)
    sys.argv = ["pretrain_gpt.py", *whole(arguments)]
    args = parse_args()
    # What the real ranks multiply the vocabulary's padding by stays out: it is told apart.
    vocab = args.vocab_size
    args.apply_rope_fusion = False
    args.gradient_accumulation_fusion = False
    args.global_batch_size = args.micro_batch_size
    validate_args(args, {})
    args.apply_rope_fusion = False
    config = core_transformer_config_from_args(args)
    config.use_cpu_initialization = True
    config.perform_initialization = False
    config.persist_layer_norm = False
    config.bias_dropout_fusion = False
    config.gradient_accumulation_fusion = False
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel()
    with contextlib.suppress(Exception):
        tensor_parallel.model_parallel_cuda_manual_seed(1)
    block = get_gpt_decoder_block_spec(
        config, use_transformer_engine=False, normalization=args.normalization, qk_l2_norm=False
    )
    further = None
    if args.mtp_num_layers:
        further = get_gpt_mtp_block_spec(config, block, use_transformer_engine=False)
    with torch.device("meta"):
        model = GPTModel(
            config=config,
            transformer_layer_spec=block,
            vocab_size=vocab,
            max_sequence_length=args.max_position_embeddings,
            position_embedding_type=args.position_embedding_type,
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            mtp_block_spec=further,
        )
    held = sum(each.numel() for each in model.parameters())
    # A correction bias of the router is a buffer there.
    biases = (each for name, each in model.named_buffers() if name.endswith("expert_bias"))
    return held + sum(each.numel() for each in biases)


warnings.simplefilter("ignore")
for line in sys.stdin:
    asked = json.loads(line)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            answer = {"parameters": count(asked["arguments"])}
    except BaseException as why:
        if isinstance(why, KeyboardInterrupt):
            raise
        tail = said.getvalue().strip().splitlines()[-1:] if isinstance(why, SystemExit) else []
        answer = {"why": f"{type(why).__name__}: {why}"[:500], "said": tail}
    print(json.dumps(answer), flush=True)
