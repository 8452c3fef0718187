"""Figures of the trained model in use: weights and the cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.ledger.parameters import total
from parlay.compiler.spec.blocks import Model

WIDTH = 2
"""bf16 weights and cache."""


@dataclass(frozen=True, slots=True)
class Inference:
    """Bytes of the weights, of the cache for one token, and for a full context.

    The last two are None where the model has no shape or states no context.
    """

    weights_bytes: int
    kv_bytes_per_token: int | None
    context_tokens: int | None
    kv_bytes_full_context: int | None
    formula: str

    @property
    def full_context_bytes(self) -> int | None:
        """Weights and cache of one sequence of full context."""
        cache = self.kv_bytes_full_context
        return None if cache is None else self.weights_bytes + cache


def inference(model: Model) -> Inference:
    """2·L·kv·d·2 bytes a token; with latent attention (kv_rank + rope)·2·L (arXiv:2405.04434, 2.1).

    Windowed layers keep `size` tokens of a full context.
    """
    weights = WIDTH * total(model)
    if model.layers is None:
        return Inference(weights, None, None, None, "")
    if model.mla is not None:
        width = model.mla.kv_rank + model.mla.rope_dim
        each = WIDTH * width
        formula = f"{WIDTH} x {width} x {model.layers} layers"
    else:
        each = 2 * WIDTH * model.kv_heads * model.head_dim
        formula = f"2 x {WIDTH} x {model.kv_heads} x {model.head_dim} x {model.layers} layers"
    cache = None
    if model.context is not None:
        cache = each * sum(_seen(model, model.context))
    return Inference(weights, each * model.layers, model.context, cache, formula)


def _seen(model: Model, context: int) -> list[int]:
    """Tokens that each layer keeps of a full context."""
    window = model.window
    if window is None:
        return [context] * model.layers
    every = window["every"]
    return [
        min(context, window["size"]) if every == 1 or (layer + 1) % every else context
        for layer in range(model.layers)
    ]
