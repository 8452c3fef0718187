"""The backward through a layer's routed experts, operator by operator (`runtime/experts.py`).

S is a piece of the residual stream, V the visits of a rank's own tokens, R those that its experts
get (as wide as the stream), I their inner tensors, W the gradients of one matrix of all of them;
what an operator has used is freed behind it. Between S, the gradient of the layer's output, and the
gradient of its input, rows go the way of the forward back:

    weighed sum    d of what came back (V), beside it (V); in the forward what came back is there in
                   two orders (V), beside the output, and that of shared experts (S each)
    exchanges      over ep as many rows again, over etp those of all its ranks, twice (R)
    order          rows in two orders (R)
    last matrix    d rows (R), d product (I), W; what came back (V) is gone
    activation     d product and the gradients of its inputs, less the product
    first ones     one after the other: its d rows (R), those of the other (R), W, less what the
                   activation saved
    router         in fp32: d input and input, beside those of the experts; all of them is gone
"""

from __future__ import annotations

from parlay.compiler.ledger.memory.mixture import own_visits, routed
from parlay.compiler.ledger.memory.operator import Point, Term, behind_norm, point, weight_width
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

LAST, FIRST = "backward of experts' last matrix", "backward of experts' first matrices"


def points(sizes: Sizes, later: int) -> list[Point]:
    """What is held beside the saved tensors at each operator that may hold the most; `later` bytes
    of them are computed again when the backward is behind the experts' outputs."""
    parts = _parts(sizes)
    parallel, gated = sizes.parallel, sizes.model.activation in GATED
    wide = max(4, sizes.width) / sizes.width

    def held(name: str, *counts: float) -> Point:
        return point(name, parts, *counts)

    def before(name: str, *counts: float) -> Point:
        less = (-1, later, "activation that is still to be computed again")
        return Point.of(name, (*held(name, *counts).terms, less))

    # streams, visits, rows, inner, weights
    one, mixture = 1 - behind_norm(sizes), sizes.model.experts
    assert mixture is not None
    found = [
        before("sum of experts' outputs", 1 + int(mixture.shared > 0), 1, 0, 0, 0),
        held(LAST, one, -1, 1, 1, 1),
        held("backward of experts' activation", one, -1, 0, 2 if gated else 1, 0),
        held(FIRST, one, -1, 1, -1, 1),
        held("backward of the router", 1 + one + 2 * wide, -1, -1, -4 if gated else -2, 0),
    ]
    if gated:
        found.append(held(FIRST, one, -1, 2, -3, 1))
    if parallel.ep > 1 or parallel.etp > 1:
        found.append(before("order of experts' rows", one, -1, 2, 0, 0))
    if parallel.etp > 1:
        found.append(before("exchange of experts' rows", one, 0, 2, 0, 0))
    return found


def behind(sizes: Sizes) -> tuple[Term, ...]:
    """What is held when all routed experts are done: the gradient of their input, less what they
    had saved."""
    inner = -4 if sizes.model.activation in GATED else -2
    return point("", _parts(sizes), 1, -1, -1, inner, 0).terms


def _parts(sizes: Sizes) -> dict[str, int]:
    experts = sizes.model.experts
    assert experts is not None
    hidden, rows = sizes.width * sizes.model.hidden, routed(sizes)
    features = -(-experts.ffn // sizes.parallel.etp)
    held = -(-experts.count // sizes.parallel.ep)
    return {
        "stream": sizes.stream()[0],
        "visits": hidden * own_visits(sizes),
        "rows": hidden * rows,
        "inner": sizes.width * rows * features,
        "weights": weight_width(sizes) * held * features * sizes.model.hidden,
    }
