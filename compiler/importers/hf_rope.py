"""Rotary positions of a `config.json`: `rope` and `rope_scaling` of the language."""

from __future__ import annotations

from typing import Final

from parlay.compiler.importers.hf_fields import Config, Unreadable, Values, shown
from parlay.compiler.importers.written import number

NAMES: Final = {
    "llama3": {
        "low_freq": "low_freq_factor",
        "high_freq": "high_freq_factor",
    },
    "yarn": {
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "attention_factor": "attention_factor",
    },
    "dynamic": {},
    "longrope": {"attention_factor": "attention_factor"},
}
"""Options of `rope_scaling` -> what the file calls them."""


def rope(config: Config, *, partial: str = "", usual: float = 1.0, base: float = 10000.0) -> Values:
    """Fields of the model; `partial` is what a family calls the share that turns, beside
    `partial_rotary_factor`, and `usual` that share where neither is there; `base` is the base
    where none is."""
    inside = config.rope()
    names = ["partial_rotary_factor", *([partial] if partial else [])]
    theta = inside.number("rope_theta", "rotary_emb_base", default=base)
    options = {"theta": number(theta)}
    if (share := inside.number(*names, default=usual)) != 1:
        options["partial"] = number(share)
    kind = inside.kind_of_rope()
    found: Values = {}
    if kind == "linear":
        options["scaling"] = number(_factor(inside))
    elif kind in NAMES:
        found["rope_scaling"] = _stretched(inside, kind)
    written = ", ".join(f"{name} = {value}" for name, value in options.items())
    return {"rope": f"rope({written})", **found}


def local_base(config: Config) -> str:
    """The base of windowed layers, where they have one of their own: Gemma 3's."""
    inside = config.of_layers("sliding_attention")
    if inside is config:
        return number(config.number("rope_local_base_freq", default=10000.0))
    turned = inside.rope()
    if turned.kind_of_rope() != "default":
        raise Unreadable("windowed layers whose positions are stretched")
    return number(turned.number("rope_theta", default=10000.0))


def _factor(inside: Config, *, usual: float = 0.0) -> float:
    factor = inside.number("factor", default=usual)
    if factor < 1:
        raise Unreadable(f"a factor of {shown(factor)} stretches no positions")
    return factor


def _stretched(inside: Config, kind: str) -> str:
    longest = inside.whole("max_position_embeddings")
    # What the library takes where the file does not say it.
    original = inside.whole("original_max_position_embeddings", default=longest)
    told = kind in ("yarn", "longrope") and original
    factor = _factor(inside, usual=longest / original if told else 0.0)
    options = {"factor": number(factor)}
    options |= {} if kind == "dynamic" else {"original": str(original)}
    for name, theirs in NAMES[kind].items():
        if inside.has(theirs):
            options[name] = number(inside.number(theirs, default=0.0))
    for name in ("short", "long") if kind == "longrope" else ():
        options[name] = f"[{', '.join(map(number, inside.numbers(f'{name}_factor')))}]"
    if kind == "yarn":
        options |= _wide(inside, factor)
        if not inside.flag("truncate", True):
            options["truncate"] = "off"
    written = ", ".join(f"{name} = {value}" for name, value in options.items())
    return f"{kind}({written})"


def _wide(inside: Config, factor: float) -> Values:
    """The library takes both scales, or neither of them for cosines and sines; latent attention
    reads the second in any case."""
    scale, over = (inside.number(name, default=0.0) for name in ("mscale", "mscale_all_dim"))
    if scale and over:
        return {"mscale": number(scale), "mscale_all_dim": number(over)}
    if not over or not inside.has("kv_lora_rank"):
        return {}
    from math import log

    found = {"mscale_all_dim": number(over)}
    if not inside.has("attention_factor"):
        found["attention_factor"] = number(0.1 * log(factor) + 1)
    return found
