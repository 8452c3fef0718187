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

`block` and its `block_gradients` are attention over some of the keys, with the log-sum-exp by which
a whole row is joined; with `Bend` scores are capped, sloped and hidden there, too, but for sinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log2
from typing import Any, NamedTuple

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
    rows: Sequence[range] = (),
) -> Tensor:
    """Attention that keeps q, k, v, its output and a log-sum-exp a query; s² scores on CPUs."""
    if not _on_gpu(q):
        return unfused(q, k, v, window=window, cap=cap, slopes=slopes, sinks=sinks, rows=rows)
    gqa = q.shape[1] != k.shape[1]
    if window is None and not cap and slopes is None and sinks is None and not rows:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
    at = _positions(q.shape[2], tuple(rows), q.device)
    bent = _bent(cap, slopes, at)
    blocks = _blocks(q.shape[2], window, q.device, k.shape[2], tuple(rows))
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
    distance = _positions(q.shape[2], tuple(rows), q.device)[:, None] - at
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


# ── Blocks of keys ────────────────────────────────────────────────────────────


class Bend(NamedTuple):
    """What is asked of a block's scores, and the positions of its queries and of its keys."""

    rows: range
    columns: range
    window: int | None = None
    cap: float = 0.0
    slopes: Tensor | None = None

    @property
    def seen(self) -> bool:
        """Whether any query sees any key."""
        near = self.rows.start - self.columns[-1]
        return self.columns.start <= self.rows[-1] and (self.window is None or near < self.window)


def block(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, bend: Bend | None = None
) -> tuple[Tensor, Tensor]:
    """Output [b, heads, s, e] and log-sum-exp [b, heads, s] over keys [b, kv_heads, t, d].

    `causal` says that the last query stands beside the last key; `bend` has positions of its own.
    On GPUs one kernel, of 16 bits where nothing is bent; else written out, at least in float32. A
    query that sees no key has an output of zeros, and minus infinity.
    """
    if bend is not None and _on_gpu(q):
        return _flex_block(q, k, v, bend)
    if bend is None and _by_flash(q):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        scale = q.shape[-1] ** -0.5
        out, lse, *_ = flash(*_even(q, k, v), 0.0, causal, False, scale=scale)
        return out[..., : v.shape[-1]], lse
    scores, _ = _scores(q, k, causal, bend)
    lse = scores.logsumexp(-1)
    least = lse.masked_fill(lse == -torch.inf, 0.0)
    out = (scores - least.unsqueeze(-1)).exp_() @ _wide(v).unsqueeze(2)
    return out.flatten(1, 2), lse.flatten(1, 2)


def block_gradients(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool = True,
    bend: Bend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What this block has of the gradients of q, k and v.

    `gradient` and `out` [b, heads, s, e] and `lse` [b, heads, s] are those of whole rows, of which
    the block is a part: exp(score - lse) is the share of a key in its row. Of bent scores kernels
    start from the block's own log-sum-exp alone: they compute it again.
    """
    if bend is not None and _on_gpu(q):
        return _flex_gradients(gradient, q, k, v, out, lse, bend)
    if bend is None and _by_flash(q):
        wq, wk, wv = q.shape[-1], k.shape[-1], v.shape[-1]
        given = _even(gradient, q, k, v, out)
        backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
        # Of no dropout the seeds are not read.
        seeds = [lse.new_zeros(2, dtype=torch.uint64), lse.new_zeros((), dtype=torch.uint64)]
        lengths = (None, None, q.shape[2], k.shape[2])
        of_q, of_k, of_v = backward(
            *given, lse.contiguous(), *lengths, 0.0, causal, *seeds, scale=wq**-0.5
        )
        return of_q[..., :wq], of_k[..., :wk], of_v[..., :wv]
    scores, steepness = _scores(q, k, causal, bend)
    heads = scores.shape[1:3]
    gradient, of_k, of_v = _wide(gradient), _wide(k).unsqueeze(2), _wide(v).unsqueeze(2)
    taken = (gradient * out).sum(-1, keepdim=True).unflatten(1, heads)
    gradient = gradient.unflatten(1, heads)
    shares = (scores - lse.unflatten(1, heads).unsqueeze(-1)).exp_()
    of_scores = shares * (gradient @ of_v.transpose(-1, -2) - taken) * q.shape[-1] ** -0.5
    if steepness is not None:
        of_scores *= steepness
    return (
        (of_scores @ of_k).flatten(1, 2),
        (of_scores.transpose(-1, -2) @ _wide(q).unflatten(1, heads)).sum(2),
        (shares.transpose(-1, -2) @ gradient).sum(2),
    )


def _scores(q: Tensor, k: Tensor, causal: bool, bend: Bend | None) -> tuple[Tensor, Tensor | None]:
    """[b, kv_heads, heads / kv_heads, s, t], and how fast each grows with what it was before a cap
    bent it."""
    queries = (_wide(q) * q.shape[-1] ** -0.5).unflatten(1, (k.shape[1], -1))
    scores = queries @ _wide(k).unsqueeze(2).transpose(-1, -2)
    if bend is not None:
        return _bent_scores(scores, bend)
    if causal:
        s, t = scores.shape[-2:]
        hidden = torch.ones(s, t, dtype=torch.bool, device=q.device).triu(t - s + 1)
        scores.masked_fill_(hidden, -torch.inf)
    return scores, None


def _bent_scores(scores: Tensor, bend: Bend) -> tuple[Tensor, Tensor | None]:
    steepness = None
    if bend.cap:
        scores = torch.tanh(scores / bend.cap)
        steepness = 1 - scores.square()
        scores = scores * bend.cap
    at, columns = (
        torch.arange(one.start, one.stop, device=scores.device) for one in (bend.rows, bend.columns)
    )
    distance = at[:, None] - columns
    if bend.slopes is not None:
        slopes = bend.slopes.to(scores.dtype).view(*scores.shape[1:3], 1, 1)
        scores = scores - slopes * distance
    hidden = distance < 0
    if bend.window is not None:
        hidden |= distance >= bend.window
    return scores.masked_fill(hidden, -torch.inf), steepness


def _flex_block(q: Tensor, k: Tensor, v: Tensor, bend: Bend) -> tuple[Tensor, Tensor]:
    """`block` by FlexAttention: queries are counted from the first key."""
    first, last = (one - bend.columns.start for one in (bend.rows.start, bend.rows.stop))
    rows = (range(first, last),)
    at = _positions(q.shape[2], rows, q.device)
    out, aux = _flex()(
        q,
        k,
        v,
        score_mod=_bent(bend.cap, bend.slopes, at),
        block_mask=_blocks(q.shape[2], bend.window, q.device, k.shape[2], rows),
        enable_gqa=q.shape[1] != k.shape[1],
        return_aux=AuxRequest(lse=True),
    )
    return out, aux.lse


def _flex_gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bend: Bend
) -> tuple[Tensor, Tensor, Tensor]:
    """The whole row is Σ exp(block's lse - lse) · block's output: both have gradients."""
    with torch.enable_grad():
        given = [one.detach().requires_grad_() for one in (q, k, v)]
        mine, own = _flex_block(given[0], given[1], given[2], bend)
    share = (own.detach() - lse).exp().unsqueeze(-1)
    of_mine = share * gradient
    of_own = (of_mine * (mine.detach() - out)).sum(-1)
    found = torch.autograd.grad((mine, own), given, (of_mine.to(mine.dtype), of_own.to(own.dtype)))
    return found[0], found[1], found[2]


def _by_flash(q: Tensor) -> bool:
    return _on_gpu(q) and q.dtype in (torch.bfloat16, torch.float16)


def _even(*tensors: Tensor) -> list[Tensor]:
    """The same tensors with as many features each, a multiple of 8: zeros are added."""
    width = -(-max(one.shape[-1] for one in tensors) // 8) * 8
    return [F.pad(one, (0, width - one.shape[-1])) for one in tensors]


# ── FlexAttention ─────────────────────────────────────────────────────────────


def _on_gpu(q: Tensor) -> bool:
    return q.is_cuda


@cache
def _flex() -> Any:
    return torch.compile(flex_attention, dynamic=False)


def _bent(cap: float, slopes: Tensor | None, at: Tensor) -> Any:
    """The function of a score, its batch, head, query and key; None where scores stay."""

    def bent(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap:
            score = torch.tanh(score / cap) * cap
        if slopes is not None:
            score = score - slopes[h] * (at[i] - j)
        return score

    return bent if cap or slopes is not None else None


@cache
def _blocks(
    s: int,
    window: int | None,
    device: torch.device,
    keys: int | None = None,
    rows: tuple[range, ...] = (),
) -> BlockMask:
    """Which blocks of keys each block of queries sees: in part, or whole.

    The same as `create_block_mask`, which would look at all pairs. Queries ascend in `rows`.
    Positions are a tensor, and no number that a kernel would be compiled for: all blocks of a ring
    have one kernel, of which torch compiles eight at the most before it computes without any.
    """
    t = s if keys is None else keys
    at = _positions(s, rows, device)

    def before(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= at[i]

    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= at[i]) & (at[i] - j < window)

    starts = torch.arange(0, s, BLOCK, device=device)
    first, last = at[starts, None], at[(starts + BLOCK).clamp(max=s) - 1, None]
    left = torch.arange(0, t, BLOCK, device=device)
    right = left + BLOCK - 1
    some, whole = left <= last, right <= first
    if window is not None:
        some, whole = some & (first - right < window), whole & (last - left < window)
    whole &= (right < t) & (starts[:, None] + BLOCK <= s)
    lists = [part for kind in (some & ~whole, whole) for part in _listed(kind)]
    mask = before if window is None else near
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=BLOCK, mask_mod=mask, seq_lengths=(s, t))


def _positions(s: int, rows: tuple[range, ...], device: torch.device) -> Tensor:
    """[s], int64."""
    runs = [torch.arange(one.start, one.stop, device=device) for one in rows or (range(s),)]
    return torch.cat(runs)


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
