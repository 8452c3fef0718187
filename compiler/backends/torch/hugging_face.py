"""What Hugging Face calls a model: the `config.json` of its family, or why no family is known.

The reverse of `importers/hf_families.py`; `runtime/hf_families.py` has the names of the weights. A
family is named where `transformers` computes what the emitted code does, and not otherwise.
"""

from __future__ import annotations

from parlay.compiler.backends.torch.hf_dense import classic, relative
from parlay.compiler.backends.torch.hf_experts import deepseek, gpt_oss, mixture
from parlay.compiler.backends.torch.hf_shared import ACTS, Config, Unnamed
from parlay.compiler.spec.blocks import Model

__all__ = ["Unnamed", "config_of", "unnamed"]


def config_of(model: Model) -> Config:
    """The keys of a `config.json` that say what the model computes; raises `Unnamed`."""
    found = _config_of(model)
    if model.window_theta is not None and found["model_type"] != "gemma3_text":
        kind = found["model_type"]
        raise Unnamed("model.window", f"{kind}, the nearest, turns all layers by one base")
    return found


def _config_of(model: Model) -> Config:
    if model.sinks and model.experts is not None:
        return gpt_oss(model, model.experts)
    _has_a_family(model)
    if model.mla is not None:
        return deepseek(model)
    if model.experts is not None:
        return mixture(model, model.experts)
    if model.norm == "layernorm":
        return classic(model)
    return relative(model)


def unnamed(model: Model) -> Unnamed | None:
    """Why no family is this model; None where one is."""
    try:
        config_of(model)
    except Unnamed as reason:
        return reason
    return None


def _has_a_family(model: Model) -> None:
    """What none of them has."""
    none = (
        ("model.embedding_norm", model.embedding_norm),
        ("model.final_norm", not model.final_norm),
        ("model.sinks", model.sinks),
        ("model.activation", model.activation not in ACTS),
        ("model.shared_norm", model.shared_norm),
        ("model.mtp_layers", model.mtp_layers > 0),
        ("model.norm_bias", model.norm_bias != (model.norm == "layernorm")),
        ("model.bias", bool({"router", "head"} & set(model.bias))),
        ("model.position", model.position in ("alibi", "none")),
        ("model.parallel_blocks", model.parallel_blocks and model.norm == "rmsnorm"),
    )
    for path, there in none:
        if there:
            raise Unnamed(path, f"none has this `{path.removeprefix('model.')}`")
