"""Causal attention with windows, soft caps, ALiBi and sinks.

Queries are [b, heads, s, d], keys and values [b, kv_heads, s, d], the result is as the queries. The
score of a query and a key is q·k / √d. Then, where it is asked for:

    cap      cap · tanh(score / cap)
    slopes   less slope · distance, a slope a head (ALiBi, arXiv:2108.12409)
    window   a token sees the last `window` tokens, itself among them, and not all before it
    sinks    one more score a head in the softmax, of no value: exp(sink) in its denominator

`fused` is one kernel that keeps no scores: of torch's FlexAttention on a GPU, which is compiled
when it first runs. `unfused` is the same written out, with all s² scores, and what `fused` is on
CPUs. Heads are those of one rank: their slopes and sinks are given with them.
"""

from __future__ import annotations

from functools import cache
from math import log2
from typing import Any

import torch
import torch.nn.functional as F
from parlay.runtime.precision import wide
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

BLOCK = 128
"""Queries, and keys, of a block of FlexAttention's mask."""


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int | None = None,
    cap: float = 0.0,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention that keeps q, k, v, its output and a log-sum-exp a query; s² scores on CPUs."""
    if not _on_gpu(q):
        return unfused(q, k, v, window=window, cap=cap, slopes=slopes, sinks=sinks)
    gqa = q.shape[1] != k.shape[1]
    if window is None and not cap and slopes is None and sinks is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
    bent = _bent(cap, slopes)
    blocks = _blocks(q.shape[2], window, q.device)
    if sinks is None:
        out: Tensor = _flex()(q, k, v, score_mod=bent, block_mask=blocks, enable_gqa=gqa)
        return out
    lse = AuxRequest(lse=True)
    out, aux = _flex()(q, k, v, score_mod=bent, block_mask=blocks, enable_gqa=gqa, return_aux=lse)
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
    at = torch.arange(q.shape[2], device=q.device)
    distance = at[:, None] - at
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


# ── FlexAttention ─────────────────────────────────────────────────────────────


def _on_gpu(q: Tensor) -> bool:
    return q.is_cuda


@cache
def _flex() -> Any:
    return torch.compile(flex_attention, dynamic=False)


def _bent(cap: float, slopes: Tensor | None) -> Any:
    """The function of a score, its batch, head, query and key; None where scores stay."""

    def bent(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap:
            score = torch.tanh(score / cap) * cap
        if slopes is not None:
            score = score - slopes[h] * (i - j)
        return score

    return bent if cap or slopes is not None else None


@cache
def _blocks(s: int, window: int | None, device: torch.device) -> BlockMask:
    """Which blocks of keys each block of queries sees: in part, or whole.

    The same as `create_block_mask`, which would look at all s² pairs.
    """
    reach = s if window is None else window

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i - j < reach)

    at = torch.arange(-(-s // BLOCK), device=device)
    apart = (at[:, None] - at) * BLOCK
    some = (apart > -BLOCK) & (apart - BLOCK + 1 < reach)
    within = (at + 1) * BLOCK <= s
    whole = (apart >= BLOCK) & (apart + BLOCK <= reach) & within & within[:, None]
    lists = [part for kind in (some & ~whole, whole) for part in _listed(kind)]
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(s, s))


def _listed(kind: Tensor) -> tuple[Tensor, Tensor]:
    """[n, n] -> how many in each row [1, 1, n], and which, those first, [1, 1, n, n]."""
    rows = kind.to(torch.int32)
    which = rows.argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return rows.sum(-1, dtype=torch.int32)[None, None], which[None, None]


def _sunk(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """What a sink in the denominator leaves: Σ / (Σ + exp(sink)) of Σ = exp(lse)."""
    left = torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])
    return out * left.unsqueeze(-1).to(out.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(wide(x.dtype))
