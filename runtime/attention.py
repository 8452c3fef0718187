"""Causal attention with windows, soft caps, ALiBi and sinks.

Queries are [b, heads, s, d], keys and values [b, kv_heads, s, d], the result is as the queries. The
score of a query and a key is q·k / √d. Then, where it is asked for:

    cap      cap · tanh(score / cap)
    slopes   less slope · distance, a slope a head (ALiBi, arXiv:2108.12409)
    window   a token sees the last `window` tokens, itself among them, and not all before it
    sinks    one more score a head in the softmax, of no value: exp(sink) in its denominator

`fused` is one kernel that keeps no scores: of torch's FlexAttention on a GPU, which is compiled
when it first runs. `unfused` is the same written out, with all s² scores, and what `fused` is on
CPUs. Heads are those of one rank: their slopes and sinks are given with them. So are its queries:
`rows` are their positions where keys are those of all ranks, by default the same as the keys'.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import torch
import torch.nn.functional as F
from parlay.runtime import flex
from parlay.runtime.precision import wide
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int | None = None,
    cap: float = 0.0,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    rows: Sequence[range] = (),
) -> Tensor:
    """Attention that keeps q, k, v, its output and a log-sum-exp a query; s² scores on CPUs."""
    if not flex.on_gpu(q):
        return unfused(q, k, v, window=window, cap=cap, slopes=slopes, sinks=sinks, rows=rows)
    gqa = q.shape[1] != k.shape[1]
    if window is None and not cap and slopes is None and sinks is None and not rows:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
    at = flex.positions(q.shape[2], tuple(rows), q.device)
    bent = flex.bent_by(cap, slopes, at)
    blocks = flex.block_mask(q.shape[2], window, q.device, k.shape[2], tuple(rows))
    if sinks is None:
        out: Tensor = flex.compiled()(q, k, v, score_mod=bent, block_mask=blocks, enable_gqa=gqa)
        return out
    lse = AuxRequest(lse=True)
    out, aux = flex.compiled()(
        q, k, v, score_mod=bent, block_mask=blocks, enable_gqa=gqa, return_aux=lse
    )
    return _sunk(out, aux.lse, sinks)


def unfused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int | None = None,
    cap: float = 0.0,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    rows: Sequence[range] = (),
) -> Tensor:
    """Attention written out, at least in float32; what it keeps of a score is its share of the
    softmax, and of a capped one the tanh besides."""
    group = q.shape[1] // k.shape[1]
    of_q, of_k, of_v = _wide(q), _wide(k), _wide(v)
    if group > 1:
        of_k, of_v = of_k.repeat_interleave(group, 1), of_v.repeat_interleave(group, 1)
    scores = (of_q * q.shape[3] ** -0.5) @ of_k.transpose(2, 3)
    if cap:
        scores = torch.tanh(scores / cap) * cap
    at = torch.arange(k.shape[2], device=q.device)
    distance = flex.positions(q.shape[2], tuple(rows), q.device)[:, None] - at
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    # Added: a mask that is filled in would be kept for the backward, of every layer.
    bias = torch.zeros_like(distance, dtype=scores.dtype).masked_fill(hidden, -torch.inf)
    if slopes is not None:
        bias = bias - slopes[:, None, None] * distance
    scores = scores + bias
    if sinks is not None:
        more = _wide(sinks)[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, more], dim=-1)
    shares = scores.softmax(-1)[..., : len(at)]
    return (shares @ of_v).to(q.dtype)


def slopes(heads: int, *, like: Tensor) -> Tensor:
    """ALiBi's slopes [heads], at least in float32: 2^(-8/n), 2^(-16/n), ..., of n heads.

    Where n is no power of two: those of the next power below, then every second one of the next
    above (arXiv:2108.12409, and the code of its authors).
    """
    below = 2 ** int(log2(heads))
    powers = [8 * (i + 1) / below for i in range(below)]
    powers += [4 * (2 * i + 1) / below for i in range(heads - below)]
    found = torch.tensor(powers, dtype=torch.float64, device=like.device)
    return torch.exp2(-found).to(wide(like.dtype))


def _sunk(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """What a sink in the denominator leaves: Σ / (Σ + exp(sink)) of Σ = exp(lse)."""
    left = torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])
    return out * left.unsqueeze(-1).to(out.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(wide(x.dtype))
