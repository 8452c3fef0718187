"""What several parts of a model have: linears, norms, caps."""

from __future__ import annotations

from parlay.reference.config import Config, Weights
from torch import Tensor


def capped(x: Tensor, cap: float) -> Tensor:
    """Softly at most `cap`; 0 is no cap."""
    return cap * (x / cap).tanh() if cap else x


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    out = x @ weights[f"{name}.weight"].T
    return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out


def norm(config: Config, weights: Weights, name: str, x: Tensor) -> Tensor:
    if config.norm == "layernorm":
        x = x - x.mean(dim=-1, keepdim=True)
    elif config.norm != "rmsnorm":
        raise ValueError(f"no norm `{config.norm}`: rmsnorm or layernorm")
    x = x / (x.square().mean(dim=-1, keepdim=True) + config.norm_eps).sqrt()
    x = x * weights[f"{name}.weight"]
    return x + weights[f"{name}.bias"] if f"{name}.bias" in weights else x
