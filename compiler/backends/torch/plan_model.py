"""What plan.json says of the model beside its plain sizes: attention, positions, experts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from parlay.compiler.backends.stretched import amplitude, score_factor, theta
from parlay.compiler.spec.blocks import Model, Train
from parlay.compiler.spec.schema import Setting


def windowed(model: Model, train: Train) -> bool:
    """Whether a window hides anything of a sequence."""
    return model.window is not None and bool(model.window["size"] < train.seq)


def attention(model: Model, train: Train) -> dict[str, Any]:
    """What attention is besides causal, and how far apart its positions are."""
    found: dict[str, Any] = {}
    if model.mla is not None:
        found["mla"] = asdict(model.mla)
    if model.position == "rope" and model.rope and model.rope["scaling"] != 1:
        found["rope_scaling"] = model.rope["scaling"]
    if model.position == "rope" and model.rope_scaling is not None:
        found |= _stretched(model, model.rope_scaling, seq=train.seq)
    if model.glu_clamp is not None:
        found["glu_clamp"] = model.glu_clamp
    if model.glu_offset:
        found["glu_offset"] = model.glu_offset
    if model.softcap and model.softcap["attention"]:
        found["attention_cap"] = model.softcap["attention"]
    if model.window and (windowed(model, train) or model.window_theta is not None):
        said = model.window.options.items()
        found["window"] = {name: value for name, value in said if value is not None}
    return found


AMPLITUDE: Final = ("mscale", "mscale_all_dim", "attention_factor")
"""Options of YaRN of which one number of the plan is made, or two."""


def _stretched(model: Model, asked: Setting, *, seq: int) -> dict[str, Any]:
    """How features of different wave lengths are stretched; `dynamic` changes the base alone."""
    found: dict[str, Any] = {}
    if asked.name == "longrope":
        used = "long" if seq > asked["original"] else "short"
        found["longrope"] = {"factors": list(asked[used])}
    elif asked.name != "dynamic":
        found[asked.name] = {n: v for n, v in asked.options.items() if n not in AMPLITUDE}
    if (wide := amplitude(asked)) != 1:
        found["rope_amplitude"] = wide
    if (steep := score_factor(model)) != 1:
        found["score_factor"] = steep
    return found


def rope_theta(model: Model, train: Train) -> float | None:
    if model.rope is None:
        return None
    turning = rotary_dim(model)
    if turning is None or model.rope_scaling is None:
        return float(model.rope["theta"])
    return theta(model, seq=train.seq, turning=turning)


CORRECTION_RATE: Final = 1e-3
"""How far a correction of the router's scores moves in a step: DeepSeek-V3's (arXiv:2412.19437,
section 4.2)."""


def experts_of(model: Model) -> dict[str, Any]:
    """Sizes of a layer of experts; `shared_ffn` is the width of all shared ones together."""
    experts = model.experts
    if experts is None:
        return {}
    found: dict[str, Any] = {
        "count": experts.count,
        "top_k": experts.top_k,
        "ffn": experts.ffn,
        "dense_layers": experts.dense_layers,
        "every": experts.every,
    }
    if experts.shared:
        found["shared_ffn"] = experts.shared * experts.shared_ffn
    if experts.groups > experts.top_groups:
        found |= {"groups": experts.groups, "top_groups": experts.top_groups}
    if experts.router_bias:
        found["correction_rate"] = CORRECTION_RATE
    for name, usual in (("scale", 1.0), ("aux_loss", 0.0), ("z_loss", 0.0)):
        if (value := getattr(experts, name)) != usual:
            found[name] = value
    return {"experts": found}


def rotary_dim(model: Model) -> int | None:
    """How many features of a head turn: the first ones; None where positions are not rotary."""
    if model.position != "rope" or model.rope is None:
        return None
    if model.mla is not None:
        return model.mla.rope_dim
    return int(model.head_dim * model.rope["partial"])
