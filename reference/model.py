"""A decoder-only transformer as one function of its weights.

The weights are a dict by global name. Everything is computed in the dtype of the weights: no
parallelism, no fused kernels, no mixed precision, nothing kept between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from parlay.reference.attention import attention
from parlay.reference.config import Config, Weights, shapes
from parlay.reference.experts import mixture
from parlay.reference.pieces import capped, linear, norm
from torch import Tensor

__all__ = ["Beside", "Config", "Weights", "logits", "loss_sum", "merged", "shapes"]


@dataclass
class Beside:
    """What layers of experts have besides: auxiliary losses, and the visits of each expert by the
    name of the correction that they move."""

    losses: list[Tensor] = field(default_factory=list)
    visits: Weights = field(default_factory=dict)


def logits(
    config: Config, weights: Weights, tokens: Tensor, beside: Beside | None = None
) -> Tensor:
    """tokens [b, s] -> [b, s, vocab]; what layers of experts have besides is added to `beside`."""
    beside = beside if beside is not None else Beside()
    weights = merged(config, weights)
    x = weights["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + weights["position.weight"][: tokens.shape[1]]
    if config.embedding_norm:
        x = norm(config, weights, "embedding_norm", x)
    for layer in range(config.layers):
        x = _layer(config, weights, layer, x, beside)
    if config.final_norm:
        x = norm(config, weights, "norm", x)
    if config.tied_embeddings:
        out = x @ weights["embedding.weight"].T
        out = out + weights["head.bias"] if "head.bias" in weights else out
    else:
        out = linear(weights, "head", x)
    return capped(out, config.softcap_logits)


def merged(config: Config, weights: Weights) -> Weights:
    """Adapters added to what they adapt (arXiv:2106.09685): W + alpha / rank · B A."""
    found = dict(weights)
    for name in [name for name in weights if name.endswith(".lora_a")]:
        whole = name.removesuffix(".lora_a")
        product = found.pop(f"{whole}.lora_b") @ found.pop(name)
        scale = config.lora_alpha / config.lora_rank
        found[f"{whole}.weight"] = weights[f"{whole}.weight"] + scale * product
    return found


def loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of -log p(label) over the labels that are not -100."""
    counted = labels != -100
    chosen = logits[counted].log_softmax(dim=-1)
    return -chosen.gather(1, labels[counted].unsqueeze(1)).sum()


# ── Layers ────────────────────────────────────────────────────────────────────


def _layer(config: Config, weights: Weights, layer: int, x: Tensor, beside: Beside) -> Tensor:
    def before(sublayer: str, x: Tensor) -> Tensor:
        if config.norm_placement == "after":
            return x
        return norm(config, weights, f"layers.{layer}.{sublayer}_norm", x)

    def after(sublayer: str, x: Tensor) -> Tensor:
        if config.norm_placement == "before":
            return x
        return norm(config, weights, f"layers.{layer}.{sublayer}_post_norm", x)

    if config.one_norm and config.norm_placement != "before":
        raise ValueError("one norm of attention and MLP stands before them")
    inner = before("attention", x)
    attended = after("attention", attention(config, weights, layer, inner))
    if not config.parallel_blocks:
        x = x + attended
        return x + after("mlp", _mlp(config, weights, layer, before("mlp", x), beside))
    inner = inner if config.one_norm else before("mlp", x)
    return x + attended + after("mlp", _mlp(config, weights, layer, inner, beside))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_geglu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
}


def _mlp(config: Config, weights: Weights, layer: int, x: Tensor, beside: Beside) -> Tensor:
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"no activation `{config.activation}`: {', '.join(ACTIVATIONS)}")
    name = f"layers.{layer}.mlp"
    if config.experts is not None and config.experts.holds(layer):
        visits: list[Tensor] = []
        out = mixture(
            config.experts,
            lambda end: weights.get(f"{name}.{end}"),
            x,
            inner=lambda gate, up: _inner(config, gate, up),
            losses=beside.losses,
            visits=visits,
        )
        beside.visits[f"{name}.router.correction"] = visits[0]
        return out
    gate = linear(weights, f"{name}.gate", x) if config.gated else None
    inner = _inner(config, gate, linear(weights, f"{name}.up", x))
    return linear(weights, f"{name}.down", inner)


def _inner(config: Config, gate: Tensor | None, up: Tensor) -> Tensor:
    """What the last matrix of an MLP sees."""
    bend = ACTIVATIONS[config.activation]
    if gate is None:
        return bend(up)
    if config.glu_clamp is not None:
        gate = torch.minimum(gate, torch.full_like(gate, config.glu_clamp))
        up = up.clamp(-config.glu_clamp, config.glu_clamp)
    return bend(gate) * (up + config.glu_offset)
