"""Causal attention, written out: queries, keys and values by each rule, all scores at once."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from parlay.reference.config import Config, Weights
from parlay.reference.pieces import capped, linear, norm
from parlay.reference.waves import steepness, waves
from torch import Tensor


def attention(config: Config, weights: Weights, layer: int, x: Tensor) -> Tensor:
    """Causal; each key and value head serves heads / kv_heads neighbouring query heads."""
    name, (b, s, _) = f"layers.{layer}.attention", x.shape
    made = _heads if config.mla is None else _latent_heads
    q, k, v = made(_of_layer(config, layer), weights, name, x)
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    if config.mla is not None and config.rope_bands is not None:
        scores = scores * steepness(config.rope_bands)
    scores = capped(scores, config.softcap_attention)
    if config.position == "alibi":
        for head in range(config.heads):
            scores[:, head] = scores[:, head] - _slope(head, config.heads) * _behind(s, x.device)
    powers = scores.masked_fill(_hidden(config, layer, s, x.device), float("-inf"))
    if config.sinks:
        powers = torch.cat([powers, _sink(weights[f"{name}.sinks"], b, s)], dim=-1)
    shares = powers.softmax(dim=-1)[..., :s]
    mixed = torch.einsum("bhqk,bkhd->bqhd", shares, v).reshape(b, s, -1)
    return linear(weights, f"{name}.o", mixed)


def _heads(config: Config, weights: Weights, name: str, x: Tensor) -> tuple[Tensor, ...]:
    """Queries [b, s, heads, d], keys and values [b, s, kv_heads, d], each made of x."""
    b, s, _ = x.shape

    def heads(part: str, count: int) -> Tensor:
        out = linear(weights, f"{name}.{part}", x)
        if config.qk_norm == "full" and part != "v":
            out = norm(config, weights, f"{name}.{part}_norm", out)
        out = out.view(b, s, count, config.head_dim)
        if config.qk_norm == "per_head" and part != "v":
            out = norm(config, weights, f"{name}.{part}_norm", out)
        return out

    q, k, v = heads("q", config.heads), heads("k", config.kv_heads), heads("v", config.kv_heads)
    if config.position == "rope":
        turning = int(config.head_dim * config.rope_partial)
        q, k = _rotated(config, q, turning), _rotated(config, k, turning)
    return q, k, v


def _latent_heads(config: Config, weights: Weights, name: str, x: Tensor) -> tuple[Tensor, ...]:
    """The same of low-rank latents (arXiv:2405.04434, section 2.1), written out.

    c = norm(W_down x) and q = W_up c, or q = W x; of W_down' x the first kv_rank features are the
    latent of keys and values, and the others, rotated, the last features of every head's key. Of a
    query's features the last ones are rotated.
    """
    mla, (b, s, _), heads = config.mla, x.shape, config.heads
    assert mla is not None
    plain, turning = mla["nope_dim"], mla["rope_dim"]

    if mla["q_rank"] is None:
        q = linear(weights, f"{name}.q", x)
    else:
        low = norm(config, weights, f"{name}.q_norm", linear(weights, f"{name}.q_down", x))
        q = linear(weights, f"{name}.q_up", low)
    q = q.view(b, s, heads, plain + turning)
    q = torch.cat([q[..., :plain], _rotated(config, q[..., plain:], turning)], dim=-1)
    low = linear(weights, f"{name}.kv_down", x)
    shared = _rotated(config, low[..., mla["kv_rank"] :].view(b, s, 1, turning), turning)
    low = norm(config, weights, f"{name}.kv_norm", low[..., : mla["kv_rank"]])
    pairs = linear(weights, f"{name}.kv_up", low).view(b, s, heads, plain + mla["v_dim"])
    k = torch.cat([pairs[..., :plain], shared.repeat(1, 1, heads, 1)], dim=-1)
    return q, k, pairs[..., plain:]


def _hidden(config: Config, layer: int, s: int, device: torch.device) -> Tensor:
    """[s, s]: whether the token of the row may not see that of the column."""
    behind = _behind(s, device)
    if config.window_size == 0 or sees_all(config, layer):
        return behind < 0
    return (behind < 0) | (behind >= config.window_size)


def sees_all(config: Config, layer: int) -> bool:
    """Whether a layer is one of those without a window."""
    return config.window_every > 1 and (layer + 1) % config.window_every == 0


def _of_layer(config: Config, layer: int) -> Config:
    """What a layer turns by, as if all of them did."""
    if config.window_theta is None or sees_all(config, layer):
        return config
    return replace(config, rope_theta=config.window_theta, rope_scaling=1.0, rope_bands=None)


def _behind(s: int, device: torch.device) -> Tensor:
    """[s, s]: how far the token of the column lies before that of the row."""
    at = torch.arange(s, device=device)
    return at[:, None] - at[None, :]


def _slope(head: int, heads: int) -> float:
    """What a head's scores lose by each token of distance, the steepest first.

    Of 2^m heads the last has 2^-8, and the others divide the way there evenly. Heads beyond the
    largest power of two have the slopes that twice as many would have between those of the first.
    """
    most = 1 << (heads.bit_length() - 1)
    if head < most:
        return float(2.0 ** (-8.0 / most)) ** (head + 1)
    return float(2.0 ** (-4.0 / most)) ** (2 * (head - most) + 1)


def _sink(sinks: Tensor, b: int, s: int) -> Tensor:
    """[heads] -> [b, heads, s, 1]"""
    return sinks[None, :, None, None].repeat(b, 1, s, 1)


def _rotated(config: Config, x: Tensor, turning: int) -> Tensor:
    """x [b, s, heads, d]: of its first r = `turning` features, i and i + r/2 turn together by
    position * theta^(-2i/r), where positions are 1 / rope_scaling apart; the others stay.

    Angles are float64: at position 8191 a float32 angle is off by 5e-4.
    """
    s, half = x.shape[1], turning // 2
    frequency, size = waves(config, half, s)
    at = torch.arange(s, dtype=torch.float64, device=x.device) / config.rope_scaling
    angle = torch.outer(at, torch.tensor(frequency, dtype=torch.float64, device=x.device))
    cos, sin = (size * part.to(x.dtype)[:, None, :] for part in (angle.cos(), angle.sin()))
    first, second, rest = x.split([half, half, x.shape[3] - 2 * half], dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
