"""Attention over some of the keys, with the log-sum-exp by which a whole row is joined.

Queries are [b, heads, s, d], keys [b, kv_heads, t, d] and values [b, kv_heads, t, e]. The score of
a query and a key is that of `attention`, with `Bend` capped, sloped and hidden, too, but for sinks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from parlay.runtime import flex
from parlay.runtime.precision import wide
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest


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
    if bend is not None and flex.on_gpu(q):
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
    if bend is not None and flex.on_gpu(q):
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
    at = flex.positions(q.shape[2], rows, q.device)
    out, aux = flex.compiled()(
        q,
        k,
        v,
        score_mod=flex.bent_by(bend.cap, bend.slopes, at),
        block_mask=flex.block_mask(q.shape[2], bend.window, q.device, k.shape[2], rows),
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
    return flex.on_gpu(q) and q.dtype in (torch.bfloat16, torch.float16)


def _even(*tensors: Tensor) -> list[Tensor]:
    """The same tensors with as many features each, a multiple of 8: zeros are added."""
    width = -(-max(one.shape[-1] for one in tensors) // 8) * 8
    return [F.pad(one, (0, width - one.shape[-1])) for one in tensors]


def _wide(x: Tensor) -> Tensor:
    return x.to(wide(x.dtype))
