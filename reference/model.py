"""A decoder-only transformer as one function of its weights.

The weights are a dict by global name. Everything is computed in the dtype of the weights: no
parallelism, no fused kernels, no mixed precision, nothing kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and structure; the choices are spelled as in the language."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    norm: str = "rmsnorm"  # rmsnorm, layernorm
    norm_eps: float = 1e-5
    norm_bias: bool = False
    activation: str = "swiglu"  # swiglu, geglu; without a gate gelu, gelu_tanh, relu, relu2, silu
    position: str = "rope"  # rope, learned, none
    rope_theta: float = 10000.0
    context: int | None = None  # rows of the learned positions
    bias: list[str] = field(default_factory=list)  # of qkv, out, mlp, head
    tied_embeddings: bool = False

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Config:
        """Reads the fields above; others, such as the padding of a layout, mean nothing here."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in facts.items() if name in known})

    @property
    def gated(self) -> bool:
        return self.activation in ("swiglu", "geglu")


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Every weight by its global name, in the order of the model."""
    hidden, heads = config.hidden, config.heads * config.head_dim
    kv = config.kv_heads * config.head_dim
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, outputs: int, inputs: int, *, kind: str) -> None:
        found[f"{name}.weight"] = (outputs, inputs)
        if kind in config.bias:
            found[f"{name}.bias"] = (outputs,)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = (hidden,)
        if config.norm_bias:
            found[f"{name}.bias"] = (hidden,)

    found["embedding.weight"] = (config.vocab, hidden)
    if config.position == "learned":
        if config.context is None:
            raise ValueError("learned positions need `context`")
        found["position.weight"] = (config.context, hidden)
    for layer in range(config.layers):
        at = f"layers.{layer}"
        norm(f"{at}.attention_norm")
        linear(f"{at}.attention.q", heads, hidden, kind="qkv")
        linear(f"{at}.attention.k", kv, hidden, kind="qkv")
        linear(f"{at}.attention.v", kv, hidden, kind="qkv")
        linear(f"{at}.attention.o", hidden, heads, kind="out")
        norm(f"{at}.mlp_norm")
        if config.gated:
            linear(f"{at}.mlp.gate", config.ffn, hidden, kind="mlp")
        linear(f"{at}.mlp.up", config.ffn, hidden, kind="mlp")
        linear(f"{at}.mlp.down", hidden, config.ffn, kind="mlp")
    norm("norm")
    if not config.tied_embeddings:
        linear("head", config.vocab, hidden, kind="head")
    return found


def logits(config: Config, weights: Weights, tokens: Tensor) -> Tensor:
    """tokens [b, s] -> [b, s, vocab]."""
    x = weights["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + weights["position.weight"][: tokens.shape[1]]
    for layer in range(config.layers):
        at = f"layers.{layer}"
        x = x + _attention(
            config, weights, f"{at}.attention", _norm(config, weights, f"{at}.attention_norm", x)
        )
        x = x + _mlp(config, weights, f"{at}.mlp", _norm(config, weights, f"{at}.mlp_norm", x))
    x = _norm(config, weights, "norm", x)
    if config.tied_embeddings:
        return x @ weights["embedding.weight"].T
    return _linear(weights, "head", x)


def loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of -log p(label) over the labels that are not -100."""
    counted = labels != -100
    chosen = logits[counted].log_softmax(dim=-1)
    return -chosen.gather(1, labels[counted].unsqueeze(1)).sum()


# ── Pieces ────────────────────────────────────────────────────────────────────


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    out = x @ weights[f"{name}.weight"].T
    return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out


def _norm(config: Config, weights: Weights, name: str, x: Tensor) -> Tensor:
    if config.norm == "layernorm":
        x = x - x.mean(dim=-1, keepdim=True)
    elif config.norm != "rmsnorm":
        raise ValueError(f"no norm `{config.norm}`: rmsnorm or layernorm")
    x = x / (x.square().mean(dim=-1, keepdim=True) + config.norm_eps).sqrt()
    x = x * weights[f"{name}.weight"]
    return x + weights[f"{name}.bias"] if f"{name}.bias" in weights else x


def _attention(config: Config, weights: Weights, name: str, x: Tensor) -> Tensor:
    """Causal; each key and value head serves heads / kv_heads neighbouring query heads."""
    b, s, _ = x.shape

    def heads(part: str, count: int) -> Tensor:
        return _linear(weights, f"{name}.{part}", x).view(b, s, count, config.head_dim)

    q, k, v = heads("q", config.heads), heads("k", config.kv_heads), heads("v", config.kv_heads)
    if config.position == "rope":
        q, k = _rotated(q, theta=config.rope_theta), _rotated(k, theta=config.rope_theta)
    group = config.heads // config.kv_heads
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(config.head_dim)
    future = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(diagonal=1)
    shares = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    mixed = torch.einsum("bhqk,bkhd->bqhd", shares, v).reshape(b, s, -1)
    return _linear(weights, f"{name}.o", mixed)


def _rotated(x: Tensor, *, theta: float) -> Tensor:
    """x [b, s, heads, d]: feature i and feature i + d/2 turn together by position * theta^(-2i/d).

    Angles are float64: at position 8191 a float32 angle is off by 5e-4.
    """
    s, d = x.shape[1], x.shape[3]
    frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    angle = torch.outer(torch.arange(s, dtype=torch.float64, device=x.device), frequency)
    cos, sin = angle.cos().to(x.dtype)[:, None, :], angle.sin().to(x.dtype)[:, None, :]
    first, second = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
}


def _mlp(config: Config, weights: Weights, name: str, x: Tensor) -> Tensor:
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"no activation `{config.activation}`: {', '.join(ACTIVATIONS)}")
    bend = ACTIVATIONS[config.activation]
    up = _linear(weights, f"{name}.up", x)
    inner = bend(_linear(weights, f"{name}.gate", x)) * up if config.gated else bend(up)
    return _linear(weights, f"{name}.down", inner)
