"""The emitted code's backward through one layer, operator by operator.

The feed-forward half goes first, while everything that the layer saved is still there. I is a
tensor of the inner width, S a piece of the residual stream, G the stream of the whole sequence, W
the gradient of one inner matrix; d… are gradients, and what an operator has used is freed behind
it:

    last matrix   dy (S, and G where it was gathered), d product (I), its weight's gradient (W)
    activation    dy, d product and the gradients of its inputs, less the product
    first ones    dy, gradients of their outputs, less all inner tensors; then, over tp, the
                  gathered input, the sum of its gradients and one of its terms (G each), or both
                  and the piece that is to be kept (S), or the input and the gradients of the
                  weights (W each)

Where weight gradients are put off their W is not there, and what they are made of stays. Experts
are in `backward_experts.py`, attention, which goes last, in `backward_attention.py`. Pieces
of a sequence lie side by side for the collectives: with several sequences in a microbatch, what is
gathered and what is scattered is a copy in another order (G more).
"""

from __future__ import annotations

from collections.abc import Sequence

from parlay.compiler.ledger.memory import backward_attention, backward_experts
from parlay.compiler.ledger.memory.layer import feed_forward_bytes
from parlay.compiler.ledger.memory.operator import Point, again, behind_norm, point, weight_width
from parlay.compiler.ledger.memory.put_off import feed_forward
from parlay.compiler.ledger.memory.record import Line, Saved
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

FIRST = "backward of the first matrices"


def most(sizes: Sizes, saved: Sequence[Saved], *, experts: bool, put_off: bool = False) -> Line:
    """The most that the backward of a layer holds beside what the forward saved, all of it; with
    `put_off`, where weight gradients of linears are left for later."""
    of_half = _first_half if put_off else _feed_forward
    points = []
    if experts:
        mixture = sizes.model.experts
        assert mixture is not None
        points += backward_experts.points(sizes, _again(sizes, saved, "activation", of="experts"))
        if mixture.shared:
            # Their forward goes first, so their backward last.
            width = -(-mixture.shared * mixture.shared_ffn // sizes.tp)
            left = backward_experts.behind(sizes)
            points += [
                Point.of(f"{each.name} of shared experts", (*each.terms, *left))
                for each in of_half(sizes, width)
            ]
    else:
        points += of_half(sizes, -(-sizes.model.ffn // sizes.tp))
    if later := _again(sizes, saved, "core_attention"):
        less = (-1, later, "attention that is still to be computed again")
        points = [Point.of(each.name, (*each.terms, less)) for each in points]
    done = feed_forward_bytes(sizes, experts=experts)
    if put_off:
        done -= feed_forward(sizes, experts=experts)
    points += backward_attention.points(sizes, done, put_off=put_off)
    fullest = max(points, key=lambda each: each.value_bytes)
    return Line(
        "temporaries", fullest.name, fullest.value_bytes, fullest.formula, sizes.stack.source
    )


def _again(sizes: Sizes, saved: Sequence[Saved], part: str, *, of: str = "") -> int:
    """Bytes of what `selective` recompute makes again of `part`, unless of all it is in."""
    recompute = sizes.train.recompute
    flags = recompute.flags or ("core_attention",)
    if recompute.name != "selective" or part not in flags or of in flags:
        return 0
    return sum([row.value_bytes for row in saved if row.part and part in row.part.split()])


def _feed_forward(sizes: Sizes, features: int) -> list[Point]:
    """The points of an MLP of `features` inner features on a rank."""
    parts = _parts(sizes, features)

    def held(name: str, stream: int, whole: int, inner: int, weight: int) -> Point:
        return point(name, parts, stream, whole, inner, weight)

    gated = sizes.model.activation in GATED
    matrices = 2 if gated else 1
    left = matrices - (4 if gated else 2)
    cut, after = int(sizes.residual > 1), behind_norm(sizes)
    last = held("backward of the last matrix", 1 - after * cut, cut, 1, 1)
    inside = held("backward of the activation", 1 - after, 0, matrices, 0)
    if sizes.tp == 1:
        return [last, inside]
    # Two matrices have two terms of the gradient, one of which is summed into the other.
    sums = held(FIRST, 1 - after, matrices + cut, left, 0)
    twice = again(sizes)
    weights = held(FIRST, 1 + cut - after, 1 + twice, left, matrices)
    if not cut:
        return [last, inside, sums, weights]
    return [last, inside, sums, held(FIRST, 2 - after, 2 + twice, left, 0), weights]


def _first_half(sizes: Sizes, features: int) -> list[Point]:
    """Those of its gradients of inputs: what weight gradients are made of stays, that is the
    product, the gradient that was gathered, and those of the first matrices' outputs."""
    parts = _parts(sizes, features)

    def held(name: str, stream: int, whole: int, inner: int) -> Point:
        return point(name, parts, stream, whole, inner, 0)

    matrices = 2 if sizes.model.activation in GATED else 1
    left = matrices - (3 if matrices > 1 else 1)
    cut, twice = int(sizes.residual > 1), again(sizes)
    one = 1 - behind_norm(sizes) * cut
    last = held("backward of the last matrix", one, cut, 1)
    inside = held("backward of the activation", one, cut, 1 + matrices)
    if sizes.tp == 1:
        return [last, inside]
    sums = held(FIRST, one, cut + matrices, left)
    if not cut:
        return [last, inside, sums]
    return [last, inside, sums, held(FIRST, 1 + one, 2 + twice, left)]


def _parts(sizes: Sizes, features: int) -> dict[str, int]:
    return {
        "stream": sizes.stream()[0],
        "whole stream": sizes.width * sizes.tokens * sizes.model.hidden,
        "inner": sizes.width * sizes.tokens * features,
        "weight": weight_width(sizes) * sizes.model.hidden * features,
    }


# ── Ends ──────────────────────────────────────────────────────────────────────


def head(sizes: Sizes) -> tuple[Line, ...]:
    """The backward of the head: gradients of logits and of its weight, and what goes below them.

    Over tp: the gathered input and the gradient of the input with the piece that is kept of it
    (sequence parallelism), or that piece, the gathered input and the gradient of the weight.
    """
    source, logits = sizes.stack.source, sizes.tokens * sizes.vocab
    stream, whole = sizes.stream()[0], sizes.width * sizes.tokens * sizes.model.hidden
    weight = _end_weight(sizes)
    cut, twice = int(sizes.residual > 1), again(sizes)
    below = max(
        (1 + cut + twice) * whole + cut * stream,
        cut * stream + (1 + twice) * whole + weight,
    )
    return (
        Line(
            "logits",
            "gradient of the logits",
            sizes.width * logits,
            f"{sizes.width} x {sizes.tokens} tokens x {sizes.vocab}",
            source,
        ),
        Line("temporaries", "gradients of the head", below, f"{below}", source),
    )


def embedding(sizes: Sizes) -> tuple[Line, ...]:
    """The backward of the embedding: the gradient of its output, gathered, and of its weight."""
    if sizes.train.lora is not None:
        return ()
    whole, weight = sizes.width * sizes.tokens * sizes.model.hidden, _end_weight(sizes)
    formula = f"{whole} + {weight}"
    source = sizes.stack.source
    return (Line("temporaries", "gradients of the embedding", whole + weight, formula, source),)


def tied(sizes: Sizes) -> tuple[Line, ...]:
    """The head's gradient of a weight that the embedding has too, held until the embedding's."""
    value = _end_weight(sizes)
    if not sizes.stack.traced:
        return ()
    source = sizes.stack.source
    return (Line("temporaries", "gradient of the tied head", value, f"{value}", source),)


def _end_weight(sizes: Sizes) -> int:
    if sizes.train.lora is not None:  # frozen
        return 0
    return sizes.width * sizes.vocab * sizes.model.hidden
