"""The backward through attention, operator by operator, when the feed-forward half is done.

S is the gradient of the residual stream, G the stream of the whole sequence where it is cut, Q, K,
V and O are queries, keys, values and outputs of a rank, P keys and values together, W weights'
gradients. The half that is done is gone, F:

    last matrix    S, d output (O), G where it was gathered, W
    scores         S, dO, and dQ, dK, dV as the kernel gives them; written out, S and twice all
                   scores in fp32, less O
    first ones     S, dQ, dK and dV, less all that the kernel saved; then as those of an MLP

Under context parallelism (`runtime/context.py`) the output is there in another order besides, which
is gone with the last matrix. Of a ring the ranks that see whole blocks of earlier ones hold most,
of gathered keys the one whose last queries see all of them:

    ring           dQ in fp32; of the block before its gradients (Q, P), their fp32 sum, and that of
                   it which goes and comes; the block that is there, and the one under way; inputs
                   of the kernel as wide as each other, and what it gives
    allgather      all keys and values, the sum of their gradients in fp32 and in 16 bits, in the
                   ranks' order; dQ, and what the kernel gave last
    ulysses        dO on its way, in three orders; in the forward, where no output is yet, Q, and P
                   as it was made, together, and in another order
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.ledger.memory.operator import Point, again, behind_norm, point, weight_width
from parlay.compiler.ledger.memory.sizes import Sizes

LAST = "backward of attention's last matrix"
FIRST = "backward of attention's first matrices"


def points(sizes: Sizes, done: int, *, put_off: bool = False) -> Iterator[Point]:
    """What is held beside the saved tensors, `done` bytes of which are gone with the other half.

    Where weight gradients are `put_off` the input of the last matrix stays, and the gradient that
    was gathered for it.
    """
    parts = _parts(sizes, done)
    cut, cp, after = int(sizes.residual > 1), sizes.parallel.cp, behind_norm(sizes)

    def held(
        name: str,
        *,
        stream: int = 1,
        whole: int = 0,
        pairs: float = 0,
        queries: float = 0,
        outputs: float = 0,
        weights: int = 0,
        last: int = 0,
    ) -> Point:
        stream -= after if name != LAST else after * cut
        counts = stream, whole, pairs, queries, outputs, weights, last, -1
        return point(name, parts, *counts)

    late = cut if put_off else 0
    yield held(LAST, whole=cut, outputs=1, last=int(not put_off))
    if cp > 1 or sizes.train.attention == "math":
        found = _context(sizes, done) if cp > 1 else _written_out(sizes, done)
        whole = sizes.width * sizes.tokens * sizes.model.hidden
        for each in found:
            kept = ((late, whole, "whole stream"), (1, parts["outputs"], "outputs"))
            yield Point.of(each.name, (*each.terms, *kept)) if put_off else each
    else:
        yield held("backward of scores", whole=late, outputs=1, queries=1, pairs=1)
    if sizes.train.attention == "math":  # what it saved is far more than what comes behind it
        return
    if sizes.tp == 1 or (sizes.model.mla is not None and sizes.model.mla.q_rank is not None):
        return
    # What the kernel saved is gone; its gradients are there.
    terms = 1 if sizes.model.mla is not None else 2
    twice, gone = again(sizes), 0 if put_off else -1
    yield held(FIRST, whole=terms + cut, outputs=gone)
    if not put_off:
        yield held(FIRST, stream=1 + cut, whole=1 + twice, weights=1, outputs=gone)
    if cut:
        yield held(FIRST, stream=2, whole=2 + twice, outputs=gone)


def _parts(sizes: Sizes, done: int) -> dict[str, int]:
    width, tokens, hidden = sizes.width, sizes.tokens, sizes.model.hidden
    query, key, value, keys = sizes.widths
    into = sizes.heads * query + (0 if sizes.model.mla is not None else keys * (key + value))
    return {
        "stream": sizes.stream()[0],
        "whole stream": width * tokens * hidden,
        "keys and values": width * tokens * keys * (key + value),
        "queries": width * tokens * sizes.heads * query,
        "outputs": width * tokens * sizes.heads * value,
        "weights": weight_width(sizes) * hidden * into,
        "last weight": weight_width(sizes) * hidden * sizes.heads * value,
        "feed-forward": done,
    }


def _written_out(sizes: Sizes, done: int) -> Iterator[Point]:
    """The points of attention that is written out."""
    query, key, value, keys = sizes.widths
    wide, each = max(4, sizes.width), sizes.width * sizes.tokens
    parts = {
        "stream": sizes.stream()[0],
        "scores": wide * sizes.heads * sizes.tokens * (sizes.seq + sizes.model.sinks),
        "outputs": each * sizes.heads * value,
        "feed-forward": done,
        "slopes": wide * sizes.heads * sizes.seq * sizes.seq,
        "distances": sizes.seq * sizes.seq,
        "queries": wide * sizes.tokens * sizes.heads * query,
        "queries, keys and values": each * (sizes.heads * query + keys * (key + value)),
    }
    after = behind_norm(sizes)
    # The gradient of the values stands for what they were.
    yield point("backward of scores", parts, 1 - after, 2, -1, -1, 0, 0, 0, 0)
    if sizes.model.position == "alibi":
        # In the forward: distances (int64), which of them are hidden, and both with slopes.
        stream = int(sizes.train.recompute.name != "none")
        yield point("slopes of scores", parts, stream, 0, -1, -1, 2, 8 + wide + 1, 1, 1)
        yield point("scores with slopes", parts, stream, 1, -1, -1, 1, 9, 0, 1)


def _context(sizes: Sizes, done: int) -> Iterator[Point]:
    """The points of attention over the ranks of cp."""
    method, cp = sizes.parallel.cp_method, sizes.parallel.cp
    query, key, value, keys = sizes.widths
    wide = max(4, sizes.width) / sizes.width
    # The kernel takes tensors of as many features, a multiple of 8.
    even = -(-max(query, key, value) // 8) * 8
    mla = sizes.model.mla
    up = 0 if mla is None else query + mla.nope_dim + value
    heads = method.name in ("ulysses", "ulysses_ring")
    if heads:
        keys = max(keys, cp if method.name == "ulysses" else int(method["inner"]))
    each = sizes.width * sizes.tokens
    parts = {
        "stream": sizes.stream()[0],
        "outputs": each * sizes.heads * value,
        "queries": each * sizes.heads * query,
        "keys and values": each * keys * (key + value),
        "even queries": each * sizes.heads * even,
        "even keys and values": each * keys * 2 * even,
        "up-projections": each * sizes.heads * up,
        "feed-forward": done,
    }
    after = behind_norm(sizes)

    def held(
        name: str,
        *,
        stream: int = 1,
        outputs: float = 0,
        queries: float = 0,
        pairs: float = 0,
        even_queries: float = 0,
        even_pairs: float = 0,
        up: int = 0,
    ) -> Point:
        # The output's other order is gone.
        counts = stream - after, outputs - 1, queries, pairs, even_queries, even_pairs, up, -1
        return point(name, parts, *counts)

    if heads:
        first = after + int(sizes.train.recompute.name == "full")
        yield held(
            "heads for pieces of the sequence", stream=first, outputs=-1, queries=1, pairs=3, up=1
        )
    if method.name == "ulysses":
        yield held("ulysses' way back", outputs=3)
        yield held("backward of scores", outputs=1, queries=1, pairs=1)
    elif method.name != "allgather":
        ranks = cp
        if heads:
            ranks = int(method["outer"])
            yield held("ulysses' way back", outputs=4)
        pairs = 3 + int(ranks > 2) + wide
        yield held(
            "backward of the ring",
            outputs=1,
            queries=wide,
            pairs=pairs,
            even_queries=5,
            even_pairs=2,
        )
    elif sizes.bent:
        yield held("backward of gathered keys", outputs=2, queries=1, pairs=3.5 * cp)
    else:
        name, whole = "backward of gathered keys", float(cp)
        yield held(name, outputs=1, pairs=(wide + 3.5) * whole, even_queries=1, even_pairs=whole)
        yield held(
            name, outputs=1, pairs=(wide + 1) * whole, even_queries=2.5, even_pairs=2 * whole + 0.5
        )
