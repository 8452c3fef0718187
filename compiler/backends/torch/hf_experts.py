"""Families of Hugging Face models with experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parlay.compiler.backends.torch.hf_shared import (
    ATTENTION,
    Config,
    Unnamed,
    attention_bias,
    decoder,
    kinds,
    only,
    own_width,
    sizes,
    window_of,
)
from parlay.compiler.spec.blocks import Experts, Model


def _routed(kind: str, experts: Experts, *, normalizes: bool | None) -> None:
    """What a softmax over all experts and the best of them is."""
    if experts.router != "softmax" or experts.router_bias:
        raise Unnamed("model.experts.router", f"{kind}, the nearest, has a plain softmax")
    if experts.groups > experts.top_groups or experts.scale != 1:
        raise Unnamed("model.experts.groups", f"{kind}, the nearest, has no groups and no scale")
    if normalizes is not None and experts.normalize != normalizes:
        raise Unnamed("model.experts.normalize", f"{kind} has it the other way")
    if experts.normalize and experts.top_k == 1:
        raise Unnamed("model.experts.top_k", f"{kind} makes the weight of a single expert 1")


def mixture(model: Model, experts: Experts) -> Config:
    if experts.router == "sigmoid":
        return _glm4(model, experts)
    if experts.shared:
        only(model, "qwen2_moe", bias=(("qkv",),))
        _routed("qwen2_moe", experts, normalizes=None)
        own_width(model, "qwen2_moe")
        if not experts.shared_gate:
            raise Unnamed("model.experts.shared_gate", "shared experts of qwen2_moe have a gate")
        found = {**decoder(model, "qwen2_moe"), **_sparse(experts)}
        return {**found, "shared_expert_intermediate_size": experts.shared * experts.shared_ffn}
    if model.qk_norm == "per_head":
        only(model, "qwen3_moe", qk_norm=("per_head",), bias=((), ATTENTION))
        _routed("qwen3_moe", experts, normalizes=None)
        return {**decoder(model, "qwen3_moe"), **attention_bias(model), **_sparse(experts)}
    only(model, "mixtral", window=None)
    _routed("mixtral", experts, normalizes=True)
    if experts.dense_layers or experts.every != 1:
        raise Unnamed("model.experts.every", "every layer of mixtral has experts")
    return {
        **decoder(model, "mixtral"),
        "intermediate_size": experts.ffn,
        "num_local_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "router_aux_loss_coef": experts.aux_loss,
        **window_of(model, "mixtral"),
    }


def _sparse(experts: Experts) -> Config:
    if experts.dense_layers % experts.every:
        raise Unnamed("model.experts.every", "layers of experts are counted from the first layer")
    return {
        "num_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.ffn,
        "norm_topk_prob": experts.normalize,
        "decoder_sparse_step": experts.every,
        "mlp_only_layers": list(range(experts.dense_layers)),
        "router_aux_loss_coef": experts.aux_loss,
    }


def gpt_oss(model: Model, experts: Experts) -> Config:
    """Sinks, clamped gates, biases everywhere, a window in every other layer."""
    kind = "gpt_oss"
    has: dict[str, tuple[Any, str]] = {
        "activation": ("quick_geglu", "`activation = quick_geglu`"),
        "glu_offset": (1, "`glu_offset = 1`"),
        "bias": ((*ATTENTION, "mlp", "router"), "a bias in each projection and router"),
        "norm": ("rmsnorm", "`norm = rmsnorm`"),
        "norm_placement": ("before", "`norm_placement = before`"),
        "qk_norm": ("none", "`qk_norm = none`"),
        "position": ("rope", "rotary positions"),
        "mla": (None, "no latent attention"),
        "embedding_norm": (False, "no norm of the embedding"),
        "final_norm": (True, "a norm before the head"),
        "parallel_blocks": (False, "its MLP behind its attention"),
        "norm_bias": (False, "no biases in its norms"),
        "mtp_layers": (0, "one head"),
    }
    for name, (value, words) in has.items():
        if getattr(model, name) != value:
            raise Unnamed(f"model.{name}", f"{kind}, which has sinks, has {words}")
    if model.glu_clamp is None:
        raise Unnamed("model.glu_clamp", f"{kind} clamps its gates")
    if model.softcap is not None and (model.softcap["attention"] or model.softcap["logits"]):
        raise Unnamed("model.softcap", f"{kind} has no caps")
    if model.rope is not None and model.rope["partial"] != 1:
        raise Unnamed("model.rope", f"{kind} turns whole heads")
    if experts.shared or experts.dense_layers or experts.every != 1:
        raise Unnamed("model.experts", f"every layer of {kind} has experts, and none for all")
    _routed(kind, experts, normalizes=True)
    found = sizes(replace(model, activation="swiglu"), kind)  # silu is written there
    every = 1 if model.window is None else model.window["every"]
    return {
        **found,
        "head_dim": model.head_dim,
        "intermediate_size": experts.ffn,
        "rms_norm_eps": model.norm_eps,
        "attention_bias": True,
        "num_local_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "swiglu_limit": model.glu_clamp,
        "layer_types": kinds(model.layers, window=model.window is not None, every=every),
        "sliding_window": None if model.window is None else model.window["size"],
        "router_aux_loss_coef": experts.aux_loss,
    }


def _behind_dense(kind: str, experts: Experts) -> Config:
    """What DeepSeek's and GLM's experts are; shared ones are as many of a routed one's width."""
    if experts.every != 1:
        raise Unnamed(
            "model.experts.every", f"every layer of {kind} behind the dense ones has experts"
        )
    width = experts.shared * experts.shared_ffn
    if not width or width % experts.ffn or experts.shared_gate:
        raise Unnamed("model.experts.shared", f"{kind} has shared experts as wide as the others")
    return {
        "n_routed_experts": experts.count,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.ffn,
        "n_shared_experts": width // experts.ffn,
        "first_k_dense_replace": experts.dense_layers,
        "norm_topk_prob": experts.normalize,
        "routed_scaling_factor": experts.scale,
        "n_group": experts.groups if experts.groups > experts.top_groups else 1,
        "topk_group": experts.top_groups if experts.groups > experts.top_groups else 1,
    }


def _grouped(kind: str, experts: Experts, *, best: int) -> None:
    """Whether groups are compared by as many of their best scores as the family adds up."""
    if experts.groups > experts.top_groups and experts.top_k // experts.top_groups != best:
        words = f"{kind} compares groups by their best {best}, here top_k // top_groups"
        raise Unnamed("model.experts.top_groups", words)


def _sigmoids(kind: str, experts: Experts) -> None:
    if not experts.router_bias:
        raise Unnamed("model.experts.router_bias", f"{kind} has a correction for each expert")
    if experts.normalize and experts.top_k == 1:
        raise Unnamed("model.experts.top_k", f"{kind} makes the weight of a single expert 1")
    _grouped(kind, experts, best=2)


def _glm4(model: Model, experts: Experts) -> Config:
    kind = "glm4_moe"
    norms = ("none", "per_head")
    only(model, kind, bias=((), ("qkv",)), qk_norm=norms, partial=True)
    _sigmoids(kind, experts)
    assert model.rope is not None
    return {
        **decoder(model, kind),
        "partial_rotary_factor": float(model.rope["partial"]),
        **attention_bias(model),
        "use_qk_norm": model.qk_norm == "per_head",
        **_behind_dense(kind, experts),
    }


def deepseek(model: Model) -> Config:
    experts, mla = model.experts, model.mla
    assert mla is not None
    sigmoid = experts is None or experts.router == "sigmoid"
    kind = "deepseek_v3" if sigmoid else "deepseek_v2"
    biased = ((), ATTENTION) if mla.q_rank is not None else ((),)
    only(model, kind, bias=biased)
    if abs(model.norm_eps - 1e-6) > 1e-12:
        raise Unnamed("model.norm_eps", f"norms of latents of {kind} have an epsilon of 1e-6")
    if experts is None:
        raise Unnamed("model.experts", f"{kind} has experts")
    if sigmoid:
        _sigmoids(kind, experts)
    else:
        if experts.router_bias or experts.normalize:
            raise Unnamed("model.experts.normalize", f"{kind} does not normalize scores")
        _grouped(kind, experts, best=1)
    found = decoder(model, kind)
    del found["head_dim"]
    groups = experts.groups > experts.top_groups
    return {
        **found,
        **attention_bias(model),
        "q_lora_rank": mla.q_rank,
        "kv_lora_rank": mla.kv_rank,
        "qk_nope_head_dim": mla.nope_dim,
        "qk_rope_head_dim": mla.rope_dim,
        "v_head_dim": mla.v_dim,
        **_behind_dense(kind, experts),
        **(
            {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "rope_interleave": True}
            if sigmoid
            else {"topk_method": "group_limited_greedy" if groups else "greedy"}
        ),
        "num_nextn_predict_layers": 0,
    }
