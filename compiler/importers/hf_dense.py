"""Families of `model_type` whose layers are all alike: a `config.json` to the fields of `model`."""

from __future__ import annotations

from typing import Final

from parlay.compiler.importers.hf_fields import Config, Unreadable, Values, shown
from parlay.compiler.importers.hf_rope import local_base, rope

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


def decoder(config: Config, *, heads_width: bool = True) -> Values:
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


def plain(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def llama(config: Config) -> Values:
    values = decoder(config)
    biased = [*(["qkv", "out"] if config.flag("attention_bias") else [])]
    biased += ["mlp"] if config.flag("mlp_bias") else []
    if biased:
        values["bias"] = biased
    return values


def windowed(config: Config) -> Values:
    values = llama(config)
    if config.has("sliding_window") and config.flag("use_sliding_window", True):
        values["window"] = f"window(size = {config.whole('sliding_window')})"
    return values


def qwen2(config: Config) -> Values:
    return {**decoder(config), "bias": ["qkv"]}


def qwen3(config: Config) -> Values:
    return {**llama(config), "qk_norm": "per_head"}


def gemma(config: Config) -> Values:
    # Left out of the file, Gemma ties its embeddings.
    return {**llama(config), "tied_embeddings": config.flag("tie_word_embeddings", True)}


def gemma2(config: Config) -> Values:
    values = {**gemma(config), "norm_placement": "both"}
    values["window"] = f"window(size = {config.whole('sliding_window')}, every = 2)"
    return {**values, **_capped(config)}


def _capped(config: Config) -> Values:
    attention = config.number("attn_logit_softcapping", default=0.0)
    logits = config.number("final_logit_softcapping", default=0.0)
    if not attention and not logits:
        return {}
    return {"softcap": f"softcap(attention = {plain(attention)}, logits = {plain(logits)})"}


def gemma3(config: Config) -> Values:
    far = config.of_layers("full_attention")
    values = {**gemma(far), **rope(far, base=1e6)}
    values |= {"norm_placement": "both", "qk_norm": "per_head", **_capped(config)}
    size, every = config.whole("sliding_window"), config.whole("sliding_window_pattern", default=6)
    near = "" if every == 1 else f", theta = {local_base(config)}"
    values["window"] = f"window(size = {size}, every = {every}{near})"
    return values


def phi3(config: Config) -> Values:
    values = decoder(config)
    if config.has("sliding_window"):
        values["window"] = f"window(size = {config.whole('sliding_window')})"
    return values


def olmo2(config: Config) -> Values:
    return {**llama(config), "norm_placement": "after", "qk_norm": "full"}


def starcoder2(config: Config) -> Values:
    return {
        **windowed(config),
        "activation": _activation(config.text("hidden_act", "gelu_pytorch_tanh"), gated=False),
        "norm": "layernorm",
        "norm_eps": config.number("norm_epsilon", default=1e-5),
        "bias": "all" if config.flag("use_bias", True) else "none",
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "dropout": config.number("residual_dropout", default=0.0),
    }


def gpt2(config: Config) -> Values:
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


def gpt_neox(config: Config) -> Values:
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
