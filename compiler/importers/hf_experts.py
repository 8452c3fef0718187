"""Families of `model_type` with experts: a `config.json` to the fields of `model`."""

from __future__ import annotations

from parlay.compiler.importers.hf_dense import decoder, plain, qwen2, qwen3, windowed
from parlay.compiler.importers.hf_fields import Config, Unreadable, Values
from parlay.compiler.importers.hf_rope import rope


def qwen3_moe(config: Config) -> Values:
    experts = {
        "count": config.whole("num_experts", "num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "every": config.whole("decoder_sparse_step", default=1),
        "normalize": config.flag("norm_topk_prob"),
        "aux_loss": config.number("router_aux_loss_coef", default=0.0),
    }
    return {**qwen3(config), "experts": experts}


def mixtral(config: Config) -> Values:
    experts = {
        "count": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("intermediate_size"),
        "aux_loss": config.number("router_aux_loss_coef", default=0.0),
    }
    return {**windowed(config), "experts": experts}


def _deepseek(config: Config, *, router: str) -> Values:
    router = config.text("scoring_func", router)
    values = decoder(config, heads_width=False)
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


def deepseek_v2(config: Config) -> Values:
    return _deepseek(config, router="softmax")


def deepseek_v3(config: Config) -> Values:
    return _deepseek(config, router="sigmoid")


def _weights(config: Config, *, normalized: bool) -> Values:
    """What the weights of a token's experts are divided by and multiplied with."""
    return {
        "normalize": config.flag("norm_topk_prob", normalized),
        "scale": config.number("routed_scaling_factor", default=1.0),
    }


def qwen2_moe(config: Config) -> Values:
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
    return {**qwen2(config), "experts": experts}


def glm4_moe(config: Config) -> Values:
    values = decoder(config) | rope(config, usual=0.5)
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


def gpt_oss(config: Config) -> Values:
    values = decoder(config)
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
    values["glu_clamp"] = plain(config.number("swiglu_limit", default=7.0))
    return {**values, "experts": experts}
