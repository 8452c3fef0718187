"""Families of Hugging Face models without experts."""

from __future__ import annotations

from parlay.compiler.backends.torch.hf_shared import (
    ACTS,
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
from parlay.compiler.spec.blocks import Model


def relative(model: Model) -> Config:
    partial = model.rope["partial"] if model.rope is not None else 1
    if model.norm_placement == "after":
        only(model, "olmo2", norm_placement=("after",), qk_norm=("full",), bias=((), ATTENTION))
        return {**decoder(model, "olmo2"), **attention_bias(model)}
    if model.norm_placement == "both":
        return _gemma3(model) if model.qk_norm == "per_head" else _gemma2(model)
    if partial != 1:
        only(model, "phi3", window=None, partial=True)
        asked, factor = model.rope_scaling, model.rope["scaling"] if model.rope is not None else 1
        if (asked is not None and asked.name != "longrope") or factor != 1:
            raise Unnamed("model.rope", "phi3 is stretched by `longrope` alone")
        # Beside the scaling its default would be another.
        original = {} if asked is None else {"original_max_position_embeddings": asked["original"]}
        return {
            **decoder(model, "phi3"),
            **original,
            "partial_rotary_factor": float(partial),
            **window_of(model, "phi3"),
            "pad_token_id": None,
        }
    if model.qk_norm == "per_head":
        only(model, "qwen3", qk_norm=("per_head",), bias=((), ATTENTION))
        return {**decoder(model, "qwen3"), **attention_bias(model)}
    if model.activation.startswith("geglu") and model.tied_embeddings:
        only(model, "gemma", bias=((), ATTENTION))
        return {**decoder(model, "gemma"), **attention_bias(model)}
    if model.window is not None:
        only(model, "mistral", window=None)
        return {**decoder(model, "mistral"), **window_of(model, "mistral")}
    if model.bias == ("qkv",):
        only(model, "qwen2", bias=(("qkv",),))
        own_width(model, "qwen2")
        return decoder(model, "qwen2")
    only(model, "llama", bias=((), ATTENTION, ("mlp",), (*ATTENTION, "mlp")))
    biased = {"mlp_bias": "mlp" in model.bias}
    return {**decoder(model, "llama"), **attention_bias(model), **biased}


def _gemma3(model: Model) -> Config:
    kind, window = "gemma3_text", model.window
    only(
        model,
        kind,
        norm_placement=("both",),
        qk_norm=("per_head",),
        bias=((), ATTENTION),
        window=None,
        softcap=None,
    )
    own = model.window_theta
    if window is not None and own is None:
        rope = model.rope
        if model.rope_scaling is not None or (rope is not None and rope["scaling"] != 1):
            raise Unnamed("model.window", f"{kind} stretches no windowed layers")
        own = None if rope is None else float(rope["theta"])
    return {
        **_gemma(model, kind),
        **attention_bias(model),
        **({} if own is None else {"rope_local_base_freq": own}),
    }


def _gemma2(model: Model) -> Config:
    only(model, "gemma2", norm_placement=("both",), window=None, softcap=None)
    return _gemma(model, "gemma2")


def _gemma(model: Model, kind: str) -> Config:
    """What Gemma 2 and 3 have alike."""
    if not model.activation.startswith("geglu"):
        raise Unnamed("model.activation", f"{kind} has `geglu` or `geglu_tanh`")
    window, caps = model.window, model.softcap
    every = 1 if window is None else window["every"]
    found = decoder(model, kind)
    found["hidden_activation"] = found.pop("hidden_act")
    return {
        **found,
        "layer_types": kinds(model.layers, window=window is not None, every=every),
        "sliding_window": model.context if window is None else window["size"],
        "query_pre_attn_scalar": model.head_dim,
        "attn_logit_softcapping": float(caps["attention"]) if caps and caps["attention"] else None,
        "final_logit_softcapping": float(caps["logits"]) if caps and caps["logits"] else None,
    }


def classic(model: Model) -> Config:
    """Families with layer norms."""
    _all = (("qkv", "out", "mlp"),)
    if model.activation.startswith(("swiglu", "geglu")):
        raise Unnamed("model.activation", "those with layer norms have an MLP without a gate")
    if model.position == "learned":
        return _gpt2(model, _all)
    assert model.rope is not None
    if model.parallel_blocks or model.rope["partial"] != 1:
        return _gpt_neox(model)
    only(model, "starcoder2", bias=((), *_all), window=None)
    own_width(model, "starcoder2")
    return {
        **sizes(model, "starcoder2"),
        "norm_epsilon": model.norm_eps,
        "use_bias": bool(model.bias),
        "residual_dropout": 0.0,
        "embedding_dropout": 0.0,
        **window_of(model, "starcoder2"),
    }


def _gpt2(model: Model, biases: tuple[tuple[str, ...], ...]) -> Config:
    only(model, "gpt2", bias=biases)
    own_width(model, "gpt2")
    if model.kv_heads != model.heads:
        raise Unnamed("model.kv_heads", "gpt2 has as many key/value heads as heads")
    if model.parallel_blocks:
        raise Unnamed("model.parallel_blocks", "gpt2 has its MLP behind its attention")
    act = ACTS[model.activation]
    return {
        "model_type": "gpt2",
        "n_layer": model.layers,
        "n_embd": model.hidden,
        "n_head": model.heads,
        "n_inner": model.ffn,
        "vocab_size": model.vocab,
        "n_positions": model.context,
        "activation_function": "gelu_new" if act == "gelu_pytorch_tanh" else act,
        "layer_norm_epsilon": model.norm_eps,
        "tie_word_embeddings": model.tied_embeddings,
        "initializer_range": model.init_std,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    }


def _gpt_neox(model: Model) -> Config:
    attention, mlp = ("qkv", "out", "mlp"), ("mlp",)
    only(model, "gpt_neox", bias=(attention, mlp), partial=True)
    own_width(model, "gpt_neox")
    if model.kv_heads != model.heads:
        raise Unnamed("model.kv_heads", "gpt_neox has as many key/value heads as heads")
    assert model.rope is not None
    found = sizes(model, "gpt_neox")
    del found["num_key_value_heads"]
    return {
        **found,
        "rotary_emb_base": found["rope_theta"],
        "rotary_pct": float(model.rope["partial"]),
        "layer_norm_eps": model.norm_eps,
        "use_parallel_residual": model.parallel_blocks,
        "attention_bias": model.bias == attention,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
