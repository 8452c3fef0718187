"""Tiny random models of `transformers`, a family each, and the jobs that read their weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from parlay.compiler import pipeline
from parlay.runtime.tokens import write_tokens

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 61,
    "initializer_range": 0.2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
LATENT = {
    **SIZES,
    "num_key_value_heads": 4,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "n_shared_experts": 2,
    "rms_norm_eps": 1e-6,
}

BANDS = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "mscale": 0.8,
    "mscale_all_dim": 0.5,
    "original_max_position_embeddings": 16,
}
FLAT = {"mscale": None, "mscale_all_dim": None, "truncate": False}

LATE = ("kv", "qk", "v")
"""The starts of names that latent attention alone has."""

FAMILIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**GROUPED, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    "llama-biased": (
        "Llama",
        {**GROUPED, "attention_bias": True, "mlp_bias": True, "rope_parameters": BANDS},
    ),
    "llama-tied": ("Llama", {**GROUPED, "tie_word_embeddings": True, "head_dim": 12}),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 5}),
    "mistral-whole": ("Mistral", {**GROUPED, "sliding_window": None}),
    "qwen2": ("Qwen2", {**GROUPED, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 12}),
    "gemma": ("Gemma", {**GROUPED, "head_dim": 8, "hidden_act": "gelu_pytorch_tanh"}),
    "gemma2": (
        "Gemma2",
        {
            **GROUPED,
            "head_dim": 8,
            "sliding_window": 5,
            "query_pre_attn_scalar": 6,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            **GROUPED,
            "num_hidden_layers": 6,
            "head_dim": 8,
            "sliding_window": 5,
            "query_pre_attn_scalar": 6,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "olmo2": ("Olmo2", GROUPED),
    "phi3": (
        "Phi3",
        {
            **GROUPED,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "phi3-whole": ("Phi3", GROUPED),
    "phi3-long": (
        "Phi3",
        {
            **GROUPED,
            "original_max_position_embeddings": 8,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
                "short_factor": [1.0, 1.5],
                "long_factor": [1.5, 6.0],
                "original_max_position_embeddings": 8,
            },
        },
    ),
    "starcoder2": ("Starcoder2", {**GROUPED, "sliding_window": None}),
    "gpt2": (
        "GPT2LMHead",
        {
            "n_embd": 32,
            "n_layer": 4,
            "n_head": 4,
            "n_positions": 64,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
            **{name: SIZES[name] for name in ("vocab_size", "initializer_range", "eos_token_id")},
        },
    ),
    "gpt_neox": ("GPTNeoX", {**SIZES, "use_parallel_residual": True}),
    "mixtral": ("Mixtral", {**GROUPED, "num_local_experts": 4, "sliding_window": None}),
    "qwen2_moe": ("Qwen2Moe", {**GROUPED, **MOE, "shared_expert_intermediate_size": 20}),
    "qwen3_moe": (
        "Qwen3Moe",
        {**GROUPED, **MOE, "head_dim": 12, "norm_topk_prob": True, "decoder_sparse_step": 2},
    ),
    "gpt_oss": (
        "GptOss",
        {
            **GROUPED,
            "head_dim": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 5,
            "swiglu_limit": 1.5,
            "rope_parameters": {**YARN, **FLAT},
        },
    ),
    "deepseek_v2": ("DeepseekV2", {**LATENT, "q_lora_rank": None, "routed_scaling_factor": 1.5}),
    "deepseek_v3": (
        "DeepseekV3",
        {**LATENT, "q_lora_rank": 9, "n_group": 2, "topk_group": 1, "rope_parameters": YARN},
    ),
    "glm4_moe": (
        "Glm4Moe",
        {name: size for name, size in LATENT.items() if name.partition("_")[0] not in LATE}
        | {"num_key_value_heads": 2, "head_dim": 8, "use_qk_norm": True, "n_group": 1}
        | {"topk_group": 1, "attention_bias": True},
    ),
}


def model_of(family: str, *, dtype: torch.dtype = torch.float32) -> Any:
    """A random model; norms and biases are not all alike."""
    name, sizes = FAMILIES[family]
    text = "Text" if name == "Gemma3" else ""
    config = getattr(transformers, f"{name.removesuffix('LMHead')}{text}Config")(**sizes)
    torch.manual_seed(5)
    model = getattr(transformers, f"{name}{'Model' if name.endswith('Head') else 'ForCausalLM'}")(
        config
    )
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if weight.dim() == 1 and not name.endswith("inv_freq"):
                weight.add_(0.1 * torch.randn_like(weight))
    return model.to(dtype).eval()


JOB = """
model from "{config}" {{ {model} }}
cluster {{ node from "laptop" {{ gpus = {gpus} }} }}
parallel {{ {parallel} }}
train {{
  seq = 16, micro_batch = 1, global_batch = 8, steps = 2, precision = {precision}
  optimizer = adamw(lr = {lr}, weight_decay = 0)
  {train}
}}
data {{ format = tokens, path = "{data}" }}
checkpoint {{ {checkpoint} }}
"""


def emitted(
    folder: Path,
    config: Path,
    parallel: str = "",
    *,
    gpus: int = 1,
    model: str = "",
    train: str = "",
    lr: str = "1e-3",
    precision: str = "fp32",
    checkpoint: str = "every = 1",
) -> Path:
    """The emitted folder of a job whose model is that of a config.json."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(config.read_bytes())
    text = JOB.format(
        config="config.json",
        gpus=gpus,
        parallel=parallel,
        model=model,
        train=train,
        lr=lr,
        data=folder / "data.bin",
        precision=precision,
        checkpoint=checkpoint,
    )
    (folder / "job.par").write_text(text)
    job = pipeline.check(folder / "job.par", ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    for name, body in pipeline.emit(job, "torch").files_of("torch").items():
        (folder / name).write_text(body)
    write_tokens(folder / "data.bin", vocab=61, seq=16, windows=24)
    return folder
