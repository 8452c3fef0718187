"""What the families of Hugging Face models share: sizes, rotary positions, and what each lacks."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.backends.stretched import amplitude
from parlay.compiler.spec.blocks import Model

Config = dict[str, Any]


class Unnamed(Exception):
    """Why no family of Hugging Face's is this model, in words, and the field that says so."""

    def __init__(self, path: str, words: str) -> None:
        super().__init__(words)
        self.path = path


ACTS: Final = {
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
}


STRETCHED: Final = {
    "low_freq": "low_freq_factor",
    "high_freq": "high_freq_factor",
    "original": "original_max_position_embeddings",
    "short": "short_factor",
    "long": "long_factor",
}
"""Options of `rope_scaling` that a config.json calls something else."""


def sizes(model: Model, kind: str) -> Config:
    return {
        "model_type": kind,
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocab,
        **({} if model.context is None else {"max_position_embeddings": model.context}),
        "hidden_act": ACTS[model.activation],
        **rope(model),
        "tie_word_embeddings": model.tied_embeddings,
        "initializer_range": model.init_std,
    }


def rope(model: Model) -> Config:
    """By the keys of older files, which newer versions read too."""
    assert model.rope is not None
    theta, factor = float(model.rope["theta"]), float(model.rope["scaling"])
    scaling: Config = {} if factor == 1 else {"rope_type": "linear", "factor": factor}
    if (asked := model.rope_scaling) is not None:
        if scaling:
            raise Unnamed("model.rope_scaling", "none stretches positions twice")
        scaling = {"rope_type": asked.name}
        for name, value in asked.options.items():
            if value is not None:
                if isinstance(value, tuple):
                    value = [float(each) for each in value]
                value = value if isinstance(value, bool | int | list) else float(value)
                scaling[STRETCHED.get(name, name)] = value
        over = asked.get("mscale_all_dim")
        alone = asked.name == "yarn" and not (asked["mscale"] and over)
        if alone and (over or asked["mscale"] != 1):
            # The library takes both scales, or neither of them.
            scaling["attention_factor"] = amplitude(asked)
    return {"rope_theta": theta, **({"rope_scaling": scaling} if scaling else {})}


def decoder(model: Model, kind: str) -> Config:
    """A relative of Llama: its sizes, and that nothing of it is another's."""
    if model.norm != "rmsnorm":
        raise Unnamed("model.norm", f"{kind} has `norm = rmsnorm`")
    if model.activation not in ("swiglu", "geglu", "geglu_tanh"):
        raise Unnamed("model.activation", f"the MLP of {kind} is gated")
    if model.position != "rope" or model.rope is None:
        raise Unnamed("model.position", f"{kind} has rotary positions")
    return {**sizes(model, kind), "head_dim": model.head_dim, "rms_norm_eps": model.norm_eps}


def only(model: Model, kind: str, *, partial: bool = False, **allowed: Any) -> None:
    """Raises where one of these fields has a value that the family has not."""
    usual = {
        "norm_placement": ("before",),
        "qk_norm": ("none",),
        "bias": ((),),
        "softcap": (None,),
        "window": (None,),
    }
    for name, values in (usual | allowed).items():
        value = getattr(model, name)
        if name == "softcap" and value is not None:
            capped = value["attention"] or value["logits"]
            value = value if capped else None
        if values is not None and value not in values:
            raise Unnamed(f"model.{name}", f"{kind}, the nearest, has another `{name}`")
    if model.rope is not None and model.rope["partial"] != 1 and not partial:
        raise Unnamed("model.rope", f"{kind}, the nearest, turns whole heads")


ATTENTION: Final = ("qkv", "out")


def attention_bias(model: Model) -> Config:
    return {"attention_bias": "qkv" in model.bias}


def own_width(model: Model, kind: str) -> None:
    if model.head_dim * model.heads != model.hidden:
        raise Unnamed("model.head_dim", f"heads of {kind} are hidden / heads wide")


def window_of(model: Model, kind: str) -> Config:
    if model.window is None:
        return {"sliding_window": None}
    if model.window["every"] != 1:
        raise Unnamed("model.window", f"{kind} has a window in every layer")
    return {"sliding_window": model.window["size"]}


def kinds(layers: int, *, window: bool, every: int) -> list[str]:
    """The attention of each layer."""
    return [
        "full_attention"
        if not window or (every > 1 and (layer + 1) % every == 0)
        else "sliding_attention"
        for layer in range(layers)
    ]
