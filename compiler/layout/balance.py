"""Uneven stages: layers cut so that the slowest stage is as fast as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from parlay.compiler.spec.blocks.model import GATED, Experts, Model


def layer_flops(model: Model, layer: int, *, seq: int | None) -> int:
    """Forward FLOPs of one token in one layer: two a weight it meets, and attention's products.

    Attention counts half of a causal sequence of `seq` tokens, less under a window; without a
    sequence length only the weights count.
    """
    return 2 * (_attention_weights(model) + _mlp_weights(model, layer)) + _scores(model, layer, seq)


def head_flops(model: Model) -> int:
    """Forward FLOPs of one token in the head, with the layers that predict further tokens."""
    return 2 * model.hidden * model.vocab


def balanced(model: Model, steps: int, *, seq: int | None) -> tuple[int, ...]:
    """Layers of each of `steps` stages, none empty, so that the costliest stage is cheapest.

    Among the cuts with that cost it takes the one with the smallest sum of squared costs. The
    embedding is a look-up and costs nothing; the head counts with the last stage.
    """
    layers = [layer_flops(model, layer, seq=seq) for layer in range(model.layers)]
    further = model.mtp_layers * (layers[-1] + head_flops(model))
    return split(layers, steps, last=head_flops(model) + further)


def split(costs: Sequence[int], steps: int, *, last: int = 0) -> tuple[int, ...]:
    """`costs` cut in `steps` runs, none empty; the last run costs `last` more.

    `[4, 4, 4, 4]`, 2 steps, last = 8 --> `(3, 1)`
    """
    assert 1 <= steps <= len(costs), "a check lets no empty stage through"
    return _split(tuple(costs), steps, last)


@lru_cache(maxsize=256)
def _split(costs: tuple[int, ...], steps: int, last: int) -> tuple[int, ...]:
    sums = [0, *accumulate(costs)]
    low, high = max(costs), sums[-1] + last
    while low < high:
        middle = (low + high) // 2
        if _fits(sums, steps, last, middle):
            high = middle
        else:
            low = middle + 1
    return _evenest(sums, steps, last, low)


def _fits(sums: Sequence[int], steps: int, last: int, most: int) -> bool:
    """Whether a cut exists with no run above `most`: each run takes what it can, from the end."""
    end = len(sums) - 1
    for step in range(steps - 1, -1, -1):
        room = most - (last if step == steps - 1 else 0)
        start = end
        while start > step and sums[end] - sums[start - 1] <= room:
            start -= 1
        if start == end:
            return False
        end = start
    return end == 0


def _evenest(sums: Sequence[int], steps: int, last: int, most: int) -> tuple[int, ...]:
    """Of the cuts with no run above `most`, the one with the smallest sum of squares.

    Of equals, the one with the shorter runs in front: there most microbatches wait.
    """
    total = len(sums) - 1
    best: dict[int, tuple[int, int]] = {0: (0, 0)}  # end of a run -> squares so far, its start
    runs: list[dict[int, tuple[int, int]]] = []
    for step in range(steps):
        extra = last if step == steps - 1 else 0
        behind = steps - 1 - step  # runs still to come
        found: dict[int, tuple[int, int]] = {}
        for start, (squares, _) in best.items():
            for end in range(start + 1, total - behind + 1):
                cost = sums[end] - sums[start] + extra
                if cost > most:
                    break
                left = sums[total] - sums[end] + (last if behind else 0)
                if left > most * behind:
                    continue
                candidate = squares + cost * cost
                if end not in found or candidate < found[end][0]:
                    found[end] = (candidate, start)
        runs.append(found)
        best = found
    ends = [total]
    for found in reversed(runs):
        ends.append(found[ends[-1]][1])
    ends.reverse()
    return tuple(end - start for start, end in pairwise(ends))


# ── What a layer costs ────────────────────────────────────────────────────────


def _attention_weights(model: Model) -> int:
    mla = model.mla
    if mla is None:
        return model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    key = mla.nope_dim + mla.rope_dim
    query = (
        model.hidden * model.heads * key
        if mla.q_rank is None
        else mla.q_rank * (model.hidden + model.heads * key)
    )
    latent = model.hidden * (mla.kv_rank + mla.rope_dim)
    expanded = mla.kv_rank * model.heads * (mla.nope_dim + mla.v_dim)
    return query + latent + expanded + model.heads * mla.v_dim * model.hidden


def _mlp_weights(model: Model, layer: int) -> int:
    matrices = 3 if model.activation in GATED else 2
    experts = model.experts
    if experts is None or not experts.holds(layer):
        return matrices * model.hidden * model.ffn
    return matrices * model.hidden * _active_width(experts) + model.hidden * experts.count


def _active_width(experts: Experts) -> int:
    return experts.top_k * experts.ffn + experts.shared * experts.shared_ffn


def _scores(model: Model, layer: int, seq: int | None) -> int:
    if seq is None:
        return 0
    seen = seq // 2
    window = model.window
    if window is not None and (window["every"] == 1 or (layer + 1) % window["every"]):
        seen = min(seen, window["size"])
    if model.mla is not None:
        width = model.mla.nope_dim + model.mla.rope_dim + model.mla.v_dim
        return 2 * model.heads * width * seen
    return 4 * model.heads * model.head_dim * seen
