"""What Hugging Face calls the weights of a model: the one table, a family a row. Pure Python.

A family differs from another in names, in what it keeps in one tensor (q, k and v; gate and up), in
matrices that lie transposed, in the order of rotated features, and in weights that it keeps as
something else: the distance of a norm from 1, an embedding that is multiplied when it is looked up.
`compiler/backends/torch/hugging_face.py` says which models a family computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Family(NamedTuple):
    """The names of a family. What stands before and behind the layers, the start of a layer's
    names, and what is in it; `{}` is the number of an expert."""

    ends: Mapping[str, str]
    layers: str
    inside: Mapping[str, str]
    turned: bool = False
    """Whether matrices of layers lie transposed."""
    paired: bool = False
    """Whether rotated features stand in pairs (2i, 2i + 1), ours in (i, i + r/2)."""
    stacked: bool = False
    """Whether experts of a layer lie in one tensor, transposed, with the rows of gate and up by
    turns."""
    from_one: bool = False
    """Whether norms are kept as their distance from 1, and the embedding is multiplied by the
    square root of the width: Gemma's."""


FUSED: Final = frozenset(
    {"attn.c_attn", "attention.query_key_value", "self_attn.qkv_proj", "mlp.gate_up_proj"}
)
"""Modules of theirs that several of ours lie in."""
INTERLEAVED: Final = frozenset({"attention.query_key_value"})
"""Those of them in which q, k and v of a head stand together."""

_ENDS: Final = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
}
_ATTENTION: Final = {
    **{f"attention.{one}": f"self_attn.{one}_proj" for one in "qkvo"},
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
}
_BEFORE: Final = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
_MLP: Final = {f"mlp.{one}": f"mlp.{one}_proj" for one in ("gate", "up", "down")}
_AFTER: Final = {
    "attention_post_norm": "post_attention_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_EXPERTS: Final = {
    "mlp.router": "mlp.gate",
    **{f"mlp.experts.{one}": f"mlp.experts.{{}}.{one}_proj" for one in ("gate", "up", "down")},
}
_DEEPSEEK: Final = {
    **_BEFORE,
    **_MLP,
    **_EXPERTS,
    **{
        f"mlp.shared_experts.{one}": f"mlp.shared_experts.{one}_proj"
        for one in ("gate", "up", "down")
    },
    "mlp.router.correction": "mlp.gate.e_score_correction_bias",
}
_LATENT: Final = {
    "attention.q": "self_attn.q_proj",
    "attention.q_down": "self_attn.q_a_proj",
    "attention.q_norm": "self_attn.q_a_layernorm",
    "attention.q_up": "self_attn.q_b_proj",
    "attention.kv_down": "self_attn.kv_a_proj_with_mqa",
    "attention.kv_norm": "self_attn.kv_a_layernorm",
    "attention.kv_up": "self_attn.kv_b_proj",
    "attention.o": "self_attn.o_proj",
}
_LLAMA: Final = Family(_ENDS, "model.layers", {**_BEFORE, **_ATTENTION, **_MLP})
_LATENTS: Final = Family(_ENDS, "model.layers", {**_DEEPSEEK, **_LATENT}, paired=True)
_GEMMA: Final = Family(
    _ENDS,
    "model.layers",
    {
        **_ATTENTION,
        **_MLP,
        **_AFTER,
        "attention_norm": "input_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
    },
    from_one=True,
)

FAMILIES: Final[Mapping[str, Family]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma": _LLAMA._replace(from_one=True),
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "olmo2": Family(_ENDS, "model.layers", {**_ATTENTION, **_MLP, **_AFTER}),
    "phi3": Family(
        _ENDS,
        "model.layers",
        {
            **_BEFORE,
            **dict.fromkeys(("attention.q", "attention.k", "attention.v"), "self_attn.qkv_proj"),
            "attention.o": "self_attn.o_proj",
            **dict.fromkeys(("mlp.gate", "mlp.up"), "mlp.gate_up_proj"),
            "mlp.down": "mlp.down_proj",
        },
    ),
    "starcoder2": Family(
        _ENDS,
        "model.layers",
        {**_BEFORE, **_ATTENTION, "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"},
    ),
    "gpt2": Family(
        {
            "embedding": "transformer.wte",
            "position": "transformer.wpe",
            "norm": "transformer.ln_f",
            "head": "lm_head",
        },
        "transformer.h",
        {
            "attention_norm": "ln_1",
            "mlp_norm": "ln_2",
            **dict.fromkeys(("attention.q", "attention.k", "attention.v"), "attn.c_attn"),
            "attention.o": "attn.c_proj",
            "mlp.up": "mlp.c_fc",
            "mlp.down": "mlp.c_proj",
        },
        turned=True,
    ),
    "gpt_neox": Family(
        {
            "embedding": "gpt_neox.embed_in",
            "norm": "gpt_neox.final_layer_norm",
            "head": "embed_out",
        },
        "gpt_neox.layers",
        {
            **_BEFORE,
            **dict.fromkeys(
                ("attention.q", "attention.k", "attention.v"), "attention.query_key_value"
            ),
            "attention.o": "attention.dense",
            "mlp.up": "mlp.dense_h_to_4h",
            "mlp.down": "mlp.dense_4h_to_h",
        },
    ),
    "mixtral": Family(
        _ENDS,
        "model.layers",
        {
            **_BEFORE,
            **_ATTENTION,
            "mlp.router": "block_sparse_moe.gate",
            "mlp.experts.gate": "block_sparse_moe.experts.{}.w1",
            "mlp.experts.up": "block_sparse_moe.experts.{}.w3",
            "mlp.experts.down": "block_sparse_moe.experts.{}.w2",
        },
    ),
    "qwen2_moe": Family(
        _ENDS,
        "model.layers",
        {
            **_BEFORE,
            **_ATTENTION,
            **_MLP,
            **_EXPERTS,
            **{
                f"mlp.shared_experts.{one}": f"mlp.shared_expert.{one}_proj"
                for one in ("gate", "up", "down")
            },
            "mlp.shared_experts.router": "mlp.shared_expert_gate",
        },
    ),
    "qwen3_moe": Family(_ENDS, "model.layers", {**_BEFORE, **_ATTENTION, **_MLP, **_EXPERTS}),
    "gpt_oss": Family(
        _ENDS,
        "model.layers",
        {
            **_BEFORE,
            **_ATTENTION,
            "attention.sinks": "self_attn.sinks",
            "mlp.router": "mlp.router",
            "mlp.experts.gate.weight": "mlp.experts.gate_up_proj",
            "mlp.experts.up.weight": "mlp.experts.gate_up_proj",
            "mlp.experts.gate.bias": "mlp.experts.gate_up_proj_bias",
            "mlp.experts.up.bias": "mlp.experts.gate_up_proj_bias",
            "mlp.experts.down.weight": "mlp.experts.down_proj",
            "mlp.experts.down.bias": "mlp.experts.down_proj_bias",
        },
        stacked=True,
    ),
    "deepseek_v2": _LATENTS,
    "deepseek_v3": _LATENTS,
    "glm4_moe": Family(_ENDS, "model.layers", {**_DEEPSEEK, **_ATTENTION}),
}
"""By `model_type`."""

TIED: Final = ("gemma", "gemma2", "gemma3_text", "gpt2", "starcoder2")
"""Those whose embeddings are tied where the config does not say."""

ARCHITECTURES: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
}
