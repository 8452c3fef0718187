"""Rotary positions that are stretched: the numbers that follow from `rope_scaling`."""

from __future__ import annotations

from math import log, sqrt

from parlay.compiler.spec.blocks import Model
from parlay.compiler.spec.schema import Setting


def amplitude(stretched: Setting | None) -> float:
    """What cosines and sines are multiplied with (arXiv:2309.00071, section 3.4; with `mscale` as
    DeepSeek-V2 has it; arXiv:2402.13753 as Phi-3 has it)."""
    if stretched is None or stretched.name not in ("yarn", "longrope"):
        return 1.0
    if stretched["attention_factor"] is not None:
        return float(stretched["attention_factor"])
    if stretched.name == "longrope":
        return sqrt(1 + log(stretched["factor"]) / log(stretched["original"]))
    factor, over = stretched["factor"], stretched["mscale_all_dim"]
    return wider(factor, stretched["mscale"]) / wider(factor, over)


def score_factor(model: Model) -> float:
    """What the scores of latent attention are multiplied with, besides 1 / sqrt(width)."""
    stretched = model.rope_scaling
    if model.mla is None or stretched is None or stretched.name != "yarn":
        return 1.0
    return wider(stretched["factor"], stretched["mscale_all_dim"]) ** 2


def wider(factor: float, scale: float) -> float:
    """0.1 · scale · ln(factor) + 1."""
    return 0.1 * scale * log(factor) + 1.0


def theta(model: Model, *, seq: int, turning: int) -> float:
    """The base of the wave lengths of `turning` features: under `dynamic` it grows with the
    sequences beyond `context` (as in `transformers`), by their length to turning / (turning - 2).
    """
    assert model.rope is not None
    base, stretched = float(model.rope["theta"]), model.rope_scaling
    if stretched is None or stretched.name != "dynamic":
        return base
    assert model.context is not None, "refused without"
    factor, beyond = stretched["factor"], max(seq, model.context) / model.context
    grown: float = (factor * beyond - (factor - 1)) ** (turning / (turning - 2))
    return base * grown
