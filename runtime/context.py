"""Context parallelism: attention over sequences that are cut over the ranks of one axis.

Queries are [b, heads, s/n, d], keys [b, kv_heads, s/n, d] and values [b, kv_heads, s/n, e] of the
tokens of one rank; attention is causal over all s of them, the score of a query and a key is
q·k / √d. Which tokens a rank has, `context_tokens` says.

`ring` and `gathered` take tokens as `head_tail` deals them out, `to_heads` and `to_sequence` either
way. Each docstring says what is sent forward and backward, in the dtype of the keys. Outputs of
blocks of keys are joined by their log-sum-exp, and backwards are written out with that of the whole
row (arXiv:2310.01889, arXiv:2205.14135), so that no block is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime import attention
from parlay.runtime.blocks import Bend, block, block_gradients
from parlay.runtime.collectives import all_gather, reduce_scatter
from parlay.runtime.context_heads import to_heads, to_sequence
from parlay.runtime.context_tokens import head_tail, joined, parted, piece, rows_of
from parlay.runtime.merged import Merged, of_sinks
from parlay.runtime.mesh import Axis
from parlay.runtime.precision import wide
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["gathered", "head_tail", "piece", "ring", "to_heads", "to_sequence"]

# ── Ring ──────────────────────────────────────────────────────────────────────


def ring(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    axis: Axis,
    window: int | None = None,
    cap: float = 0.0,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of q, k and v -> [b, heads, s/n, e]; keys and values go round, those that a window
    hides too. The rest is as `attention` has it.

    Forward: n - 1 times send and recv of keys and values [b, kv_heads, s/n, d + e], the next while
    one is used. Backward: as often once more, and n times send and recv of their gradient, which
    comes home with the last.
    """
    asked = None
    if window is not None or cap or slopes is not None:
        asked = {"window": window, "cap": cap, "slopes": slopes}
    out: Tensor = _Ring.apply(q, k, v, sinks, axis, asked)
    return out


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None,
        axis: Axis,
        asked: dict[str, Any] | None,
    ) -> Tensor:
        pair = own = torch.cat([k, v], dim=-1)
        ctx.axis, ctx.widths, ctx.asked = axis, (k.shape[-1], v.shape[-1]), asked
        found = Merged(q, v.shape[-1])
        for turn in range(axis.size):
            coming = _Passed(pair, axis) if turn + 1 < axis.size else None
            for rows, columns, how in _blocks(turn, q.shape[2], axis, asked):
                keys, values = pair[:, :, columns].split(ctx.widths, dim=-1)
                found.add(rows, *block(q[:, :, rows], keys, values, **how))
            pair = coming.wait() if coming is not None else pair
        out, lse = found.done(sinks)
        ctx.save_for_backward(q, own, out, lse, sinks)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, pair, out, lse, sinks = ctx.saved_tensors
        axis: Axis = ctx.axis
        of_q = torch.zeros_like(q, dtype=wide(q.dtype))
        sent: _Passed | None = None
        for turn in range(axis.size):
            coming = _Passed(pair, axis) if turn + 1 < axis.size else None
            of_pair = torch.zeros_like(pair, dtype=of_q.dtype)
            for rows, columns, how in _blocks(turn, q.shape[2], axis, ctx.asked):
                keys, values = pair[:, :, columns].split(ctx.widths, dim=-1)
                mine, of_keys, of_values = block_gradients(
                    gradient[:, :, rows],
                    q[:, :, rows],
                    keys,
                    values,
                    out[:, :, rows],
                    lse[:, :, rows],
                    **how,
                )
                of_q[:, :, rows] += mine
                of_pair[:, :, columns] += torch.cat([of_keys, of_values], dim=-1)
            if sent is not None:
                of_pair += sent.wait()
            sent = _Passed(of_pair.to(pair.dtype), axis, tag=1)
            pair = coming.wait() if coming is not None else pair
        assert sent is not None
        of_k, of_v = sent.wait().split(ctx.widths, dim=-1)
        return of_q.to(q.dtype), of_k, of_v, of_sinks(sinks, gradient, out, lse), None, None


def _blocks(
    turn: int, tokens: int, axis: Axis, asked: dict[str, Any] | None
) -> Iterator[tuple[slice, slice, dict[str, Any]]]:
    """Of this rank's queries and of the keys that have come `turn` ranks far: what sees what, and
    how. Bent scores are looked at chunk by chunk, those first in which each query sees itself."""
    if asked is None:
        yield *_seen(turn, tokens, axis), {"causal": turn == 0}
        return
    half = tokens // 2
    chunks = slice(half), slice(half, tokens)
    ours = rows_of(half, axis)
    theirs = rows_of(half, replace(axis, rank=(axis.rank - turn) % axis.size))
    for mine, other in ((0, 0), (1, 1), (1, 0), (0, 1)):
        bend = Bend(ours[mine], theirs[other], **asked)
        if bend.seen:
            yield chunks[mine], chunks[other], {"bend": bend}


def _seen(turn: int, tokens: int, axis: Axis) -> tuple[slice, slice]:
    """Which of this rank's queries see which of the keys that have come `turn` ranks far.

    Of an earlier rank the first chunk lies before both of ours, its second one behind them; both
    chunks of a later rank lie between ours.
    """
    half = tokens // 2
    if turn == 0:
        return slice(tokens), slice(tokens)
    return (slice(tokens), slice(half)) if turn <= axis.rank else (slice(half, None), slice(tokens))


class _Passed:
    """A tensor on its way to the next rank of the ring, and that of the one before."""

    def __init__(self, x: Tensor, axis: Axis, *, tag: int = 0) -> None:
        self.works: list[dist.Work] = []
        self.x = self.came = x.contiguous()
        if axis.size == 1:
            return
        self.came = torch.empty_like(self.x)
        peers = (axis.rank + 1) % axis.size, (axis.rank - 1) % axis.size
        pairs = zip((dist.isend, dist.irecv), (self.x, self.came), peers, strict=True)
        self.works = dist.batch_isend_irecv(
            [dist.P2POp(op, one, group=axis.group, tag=tag, group_peer=to) for op, one, to in pairs]
        )

    def wait(self) -> Tensor:
        """What came."""
        for work in self.works:
            work.wait()
        return self.came


# ── All keys at once ──────────────────────────────────────────────────────────


def gathered(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    axis: Axis,
    window: int | None = None,
    cap: float = 0.0,
    slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of q, k and v -> [b, heads, s/n, e]; the rest is as `attention` has it.

    Forward: all_gather of keys and values to [b, kv_heads, s, d + e]; a rank keeps its own alone.
    Backward: the same again, reduce_scatter of their gradient. Where scores are bent or hidden it
    computes the forward again, too.
    """
    if window is None and not cap and slopes is None:
        out: Tensor = _Gathered.apply(q, k, v, sinks, axis)
    else:
        out = _Again.apply(q, k, v, sinks, slopes, window, cap, axis)
    return out


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, axis: Axis
    ) -> Tensor:
        own = torch.cat([k, v], dim=-1)
        ctx.axis, ctx.widths = axis, (k.shape[-1], v.shape[-1])
        whole = _gather(own, axis)
        found = Merged(q, v.shape[-1])
        for rows, columns in _before(q.shape[2], axis):
            keys, values = whole[:, :, columns].split(ctx.widths, dim=-1)
            found.add(rows, *block(q[:, :, rows], keys, values, causal=True))
        out, lse = found.done(sinks)
        ctx.save_for_backward(q, own, out, lse, sinks)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, own, out, lse, sinks = ctx.saved_tensors
        whole = _gather(own, ctx.axis)
        of_whole = torch.zeros_like(whole, dtype=wide(q.dtype))
        of_q = []
        for rows, columns in _before(q.shape[2], ctx.axis):
            keys, values = whole[:, :, columns].split(ctx.widths, dim=-1)
            mine, of_keys, of_values = block_gradients(
                gradient[:, :, rows],
                q[:, :, rows],
                keys,
                values,
                out[:, :, rows],
                lse[:, :, rows],
                causal=True,
            )
            of_q.append(mine.to(q.dtype))
            of_whole[:, :, columns] += torch.cat([of_keys, of_values], dim=-1)
        of_k, of_v = _scatter(of_whole.to(own.dtype), ctx.axis).split(ctx.widths, dim=-1)
        taken = of_sinks(sinks, gradient, out, lse)
        return torch.cat(of_q, dim=2), of_k, of_v, taken, None


class _Again(torch.autograd.Function):
    """Of which nothing is kept but what it was given: kernels of bent scores give no log-sum-exp
    that a backward of a part of the rows could start from."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None,
        slopes: Tensor | None,
        window: int | None,
        cap: float,
        axis: Axis,
    ) -> Tensor:
        own = torch.cat([k, v], dim=-1)
        ctx.axis, ctx.widths = axis, (k.shape[-1], v.shape[-1])
        rows = rows_of(q.shape[2] // 2, axis)
        ctx.asked = {"window": window, "cap": cap, "slopes": slopes, "rows": rows}
        ctx.save_for_backward(q, own, sinks)
        keys, values = _gather(own, axis).split(ctx.widths, dim=-1)
        return attention.fused(q, keys, values, sinks=sinks, **ctx.asked)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, own, sinks = ctx.saved_tensors
        given = [q, _gather(own, ctx.axis), *([] if sinks is None else [sinks])]
        with torch.enable_grad():
            given = [one.detach().requires_grad_() for one in given]
            keys, values = given[1].split(ctx.widths, dim=-1)
            of = None if sinks is None else given[2]
            out = attention.fused(given[0], keys, values, sinks=of, **ctx.asked)
        of_q, of_whole, *taken = torch.autograd.grad(out, given, gradient)
        of_k, of_v = _scatter(of_whole, ctx.axis).split(ctx.widths, dim=-1)
        return of_q, of_k, of_v, *(taken or [None]), None, None, None, None


def _before(tokens: int, axis: Axis) -> list[tuple[slice, slice]]:
    """Each chunk of this rank's queries, and the keys up to its last one."""
    half = tokens // 2
    first, last = rows_of(half, axis)
    return [
        (slice(half), slice(first.stop)),
        (slice(half, None), slice(last.stop)),
    ]


def _gather(own: Tensor, axis: Axis) -> Tensor:
    """[b, heads, s/n, d] -> [b, heads, s, d]"""
    parts = own.new_empty(axis.size, *own.shape)
    all_gather(parts.flatten(0, 1), own.contiguous(), group=axis.group)
    return joined(parts, folded=True)


def _scatter(whole: Tensor, axis: Axis) -> Tensor:
    """[b, heads, s, d] -> [b, heads, s/n, d], summed over the ranks."""
    parts = parted(whole, axis.size, folded=True)
    own = torch.empty_like(parts[0])
    reduce_scatter(own, parts.flatten(0, 1), group=axis.group)
    return own
