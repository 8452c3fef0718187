"""Recompute that chooses by operator, as torchtitan's bare `selective` does.

Its policy keeps the outputs of attention and of every second matrix product, counted from the
layer's start, and of collectives; everything else is made again. Of the products of a dense layer
(q, k, v, out, then the MLP's first one or two, then its last) those are q, v, and every second on.
"""

from __future__ import annotations

from parlay.compiler.ledger.memory.mixture import routed
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED


def kept_bytes(sizes: Sizes, *, experts: bool) -> int:
    """Bytes that one layer keeps of one microbatch: its input, and the outputs named above."""
    model, width, tokens = sizes.model, sizes.width, sizes.tokens
    stream = sizes.stream()[0]
    attention = sizes.heads * (model.head_dim if model.mla is None else model.mla.v_dim)
    inner = -(-model.ffn // sizes.tp)
    products = [
        *(sizes.heads * model.head_dim, *[sizes.kv_heads * model.head_dim] * 2, model.hidden),
        *(() if experts else (*[inner] * (2 if model.activation in GATED else 1), model.hidden)),
    ]
    features = sum(products[::2]) + attention
    statistics = 4 * sizes.heads * tokens
    exchanged = experts and sizes.parallel.ep > 1
    collectives = 2 * width * routed(sizes) * model.hidden if exchanged else 0
    return stream + width * tokens * features + statistics + collectives
