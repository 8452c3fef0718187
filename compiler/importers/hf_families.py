"""One function for each family of `model_type`: a `config.json` to the fields of `model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from parlay.compiler.importers.hf_fields import Config, Unreadable, Values, shown
from parlay.compiler.importers.hf_rope import rope

# ── Families ──────────────────────────────────────────────────────────────────

_ACTIVATIONS: Final = {
    "silu": ("swiglu", "silu"),
    "swish": ("swiglu", "silu"),
    "gelu": ("geglu", "gelu"),
    "gelu_new": ("geglu_tanh", "gelu_tanh"),
    "gelu_fast": ("geglu_tanh", "gelu_tanh"),
    "gelu_pytorch_tanh": ("geglu_tanh", "gelu_tanh"),
    "relu": (None, "relu"),
    "relu2": (None, "relu2"),
}


def _activation(name: str, *, gated: bool) -> str:
    found = _ACTIVATIONS.get(name, (None, None))[0 if gated else 1]
    if found is None:
        raise Unreadable(f"activation {shown(name)} is not known")
    return found


def _decoder(config: Config, *, heads_width: bool = True) -> Values:
    """What Llama and its relatives share: rmsnorm, gate, rope, grouped heads."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    values: Values = {
        "layers": config.whole("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.whole("num_key_value_heads", default=heads),
        "ffn": config.whole("intermediate_size"),
        "vocab": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings"),
        "activation": _activation(
            config.text("hidden_act", config.text("hidden_activation", "silu")), gated=True
        ),
        "norm": "rmsnorm",
        "norm_eps": config.number("rms_norm_eps", default=1e-6),
        "position": "rope",
        **rope(config),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "init_std": config.number("initializer_range", default=0.02),
    }
    if heads_width and config.has("head_dim"):
        values["head_dim"] = config.whole("head_dim")
    if config.number("attention_dropout", default=0.0) > 0:
        values["dropout"] = config.number("attention_dropout", default=0.0)
    return values


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def _llama(config: Config) -> Values:
    values = _decoder(config)
    biased = [*(["qkv", "out"] if config.flag("attention_bias") else [])]
    biased += ["mlp"] if config.flag("mlp_bias") else []
    if biased:
        values["bias"] = biased
    return values


def _windowed(config: Config) -> Values:
    values = _llama(config)
    if config.has("sliding_window") and config.flag("use_sliding_window", True):
        values["window"] = f"window(size = {config.whole('sliding_window')})"
    return values


def _qwen2(config: Config) -> Values:
    return {**_decoder(config), "bias": ["qkv"]}


def _qwen3(config: Config) -> Values:
    return {**_llama(config), "qk_norm": "per_head"}


def _qwen3_moe(config: Config) -> Values:
    experts = {
        "count": config.whole("num_experts", "num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "every": config.whole("decoder_sparse_step", default=1),
        "normalize": config.flag("norm_topk_prob"),
        "aux_loss": config.number("router_aux_loss_coef", default=0.0),
    }
    return {**_qwen3(config), "experts": experts}


def _mixtral(config: Config) -> Values:
    experts = {
        "count": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("intermediate_size"),
        "aux_loss": config.number("router_aux_loss_coef", default=0.0),
    }
    return {**_windowed(config), "experts": experts}


def _gemma(config: Config) -> Values:
    # Left out of the file, Gemma ties its embeddings.
    return {**_llama(config), "tied_embeddings": config.flag("tie_word_embeddings", True)}


def _gemma2(config: Config) -> Values:
    values = {**_gemma(config), "norm_placement": "both"}
    values["window"] = f"window(size = {config.whole('sliding_window')}, every = 2)"
    attention = config.number("attn_logit_softcapping", default=0.0)
    logits = config.number("final_logit_softcapping", default=0.0)
    if attention or logits:
        values["softcap"] = f"softcap(attention = {_plain(attention)}, logits = {_plain(logits)})"
    return values


def _gemma3(config: Config) -> Values:
    values = {**_gemma(config), "norm_placement": "both", "qk_norm": "per_head"}
    every = config.whole("sliding_window_pattern", default=6)
    values["window"] = f"window(size = {config.whole('sliding_window')}, every = {every})"
    return values


def _deepseek(config: Config, *, router: str) -> Values:
    router = config.text("scoring_func", router)
    values = _decoder(config, heads_width=False)
    nope, turned = config.whole("qk_nope_head_dim"), config.whole("qk_rope_head_dim")
    mla: Values = {
        "kv_rank": config.whole("kv_lora_rank"),
        "nope_dim": nope,
        "rope_dim": turned,
        "v_dim": config.whole("v_head_dim"),
    }
    if config.has("q_lora_rank"):
        mla["q_rank"] = config.whole("q_lora_rank")
    experts: Values = {
        "count": config.whole("n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "shared": config.whole("n_shared_experts", default=0),
        "dense_layers": config.whole("first_k_dense_replace", default=0),
        "every": config.whole("moe_layer_freq", default=1),
        "router": router,
        "router_bias": router == "sigmoid",
        **_weights(config, normalized=router == "sigmoid"),
        "groups": config.whole("n_group", default=1),
        "top_groups": config.whole("topk_group", default=1),
    }
    values |= {"kv_heads": values["heads"], "head_dim": nope + turned, "mla": mla}
    return {**values, "experts": experts}


def _deepseek_v2(config: Config) -> Values:
    return _deepseek(config, router="softmax")


def _deepseek_v3(config: Config) -> Values:
    return _deepseek(config, router="sigmoid")


def _phi3(config: Config) -> Values:
    values = _decoder(config)
    if config.has("sliding_window"):
        values["window"] = f"window(size = {config.whole('sliding_window')})"
    return values


def _olmo2(config: Config) -> Values:
    return {**_llama(config), "norm_placement": "after", "qk_norm": "full"}


def _weights(config: Config, *, normalized: bool) -> Values:
    """What the weights of a token's experts are divided by and multiplied with."""
    return {
        "normalize": config.flag("norm_topk_prob", normalized),
        "scale": config.number("routed_scaling_factor", default=1.0),
    }


def _qwen2_moe(config: Config) -> Values:
    experts = {
        "count": config.whole("num_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "shared": 1,
        "shared_ffn": config.whole("shared_expert_intermediate_size"),
        "shared_gate": True,
        "every": config.whole("decoder_sparse_step", default=1),
        "normalize": config.flag("norm_topk_prob"),
        "aux_loss": config.number("router_aux_loss_coef", default=0.0),
    }
    return {**_qwen2(config), "experts": experts}


def _glm4_moe(config: Config) -> Values:
    values = _decoder(config) | rope(config, usual=0.5)
    if config.flag("attention_bias"):
        values["bias"] = ["qkv"]
    if config.flag("use_qk_norm"):
        values["qk_norm"] = "per_head"
    experts = {
        "count": config.whole("n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "shared": config.whole("n_shared_experts", default=0),
        "dense_layers": config.whole("first_k_dense_replace", default=0),
        "router": "sigmoid",
        "router_bias": True,
        **_weights(config, normalized=True),
        "groups": config.whole("n_group", default=1),
        "top_groups": config.whole("topk_group", default=1),
    }
    return {**values, "experts": experts}


def _gpt_oss(config: Config) -> Values:
    values = _decoder(config)
    attention = ["qkv", "out"] if config.flag("attention_bias", True) else []
    experts = {
        "count": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("intermediate_size"),
        "aux_loss": config.number("router_aux_loss_coef", default=0.0),
    }
    window = f"window(size = {config.whole('sliding_window')}, every = 2)"
    values |= {"bias": [*attention, "mlp", "router"], "sinks": True, "window": window}
    # silu is written there; what is computed is x · sigmoid(alpha · x), with clamps.
    if config.number("swiglu_alpha", default=1.702) != 1.702:
        raise Unreadable("swiglu_alpha is another than 1.702")
    values |= {"activation": "quick_geglu", "glu_offset": 1}
    values["glu_clamp"] = _plain(config.number("swiglu_limit", default=7.0))
    return {**values, "experts": experts}


def _starcoder2(config: Config) -> Values:
    return {
        **_windowed(config),
        "activation": _activation(config.text("hidden_act", "gelu_pytorch_tanh"), gated=False),
        "norm": "layernorm",
        "norm_eps": config.number("norm_epsilon", default=1e-5),
        "bias": "all" if config.flag("use_bias", True) else "none",
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "dropout": config.number("residual_dropout", default=0.0),
    }


def _gpt2(config: Config) -> Values:
    hidden = config.whole("n_embd")
    return {
        "layers": config.whole("n_layer"),
        "hidden": hidden,
        "heads": config.whole("n_head"),
        "ffn": config.whole("n_inner", default=4 * hidden),
        "vocab": config.whole("vocab_size"),
        "context": config.whole("n_positions", "n_ctx"),
        "activation": _activation(config.text("activation_function", "gelu_new"), gated=False),
        "norm": "layernorm",
        "norm_eps": config.number("layer_norm_epsilon", default=1e-5),
        "position": "learned",
        "bias": "all",
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "dropout": config.number("resid_pdrop", default=0.1),
        "init_std": config.number("initializer_range", default=0.02),
    }


def _gpt_neox(config: Config) -> Values:
    biased = ["qkv", "out", "mlp"] if config.flag("attention_bias", True) else ["mlp"]
    return {
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "heads": config.whole("num_attention_heads"),
        "ffn": config.whole("intermediate_size"),
        "vocab": config.whole("vocab_size"),
        "context": config.whole("max_position_embeddings"),
        "activation": _activation(config.text("hidden_act", "gelu"), gated=False),
        "norm": "layernorm",
        "norm_eps": config.number("layer_norm_eps", default=1e-5),
        "position": "rope",
        **rope(config, partial="rotary_pct", usual=0.25),
        "bias": biased,
        "parallel_blocks": config.flag("use_parallel_residual", True),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "init_std": config.number("initializer_range", default=0.02),
    }


FAMILIES: Final[Mapping[str, Callable[[Config], Values]]] = {
    "llama": _llama,
    "mistral": _windowed,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "glm4_moe": _glm4_moe,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2_moe": _qwen2_moe,
    "starcoder2": _starcoder2,
}
