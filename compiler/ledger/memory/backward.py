"""The emitted code's backward through one layer, operator by operator.

The feed-forward half goes first, while everything that the layer saved is still there, so the most
is held in it. I is a tensor of the inner width, S a piece of the residual stream, G the stream of
the whole sequence, W the gradient of one inner matrix; d… are gradients, and what an operator has
used is freed behind it:

    last matrix   dy (S, and G where it was gathered), d product (I), its weight's gradient (W)
    activation    dy, d product and the gradients of its inputs, less the product
    first ones    dy, gradients of their outputs, less all inner tensors; then, over tp, the
                  gathered input, the sum of its gradients and one of its terms (G each), or both
                  and the piece that is to be kept (S), or the input and the gradients of the
                  weights (W each)

Pieces of a sequence lie side by side for the collectives: with several sequences in a microbatch,
what is gathered and what is scattered is a copy in another order (G more).
"""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

FIRST = "first matrices"


@dataclass(frozen=True, slots=True)
class _Point:
    """What is held beside the saved tensors at one operator: so many of S, G, I and W."""

    name: str
    stream: int
    whole: int
    inner: int
    weight: int


def most(sizes: Sizes) -> Line:
    """The most that the backward of a layer holds beside what the forward saved."""
    inner = sizes.width * sizes.tokens * -(-sizes.model.ffn // sizes.tp)
    stream, whole = sizes.stream()[0], sizes.width * sizes.tokens * sizes.model.hidden
    weight = sizes.width * sizes.model.hidden * -(-sizes.model.ffn // sizes.tp)
    frozen = sizes.train.lora is not None

    def held(point: _Point) -> int:
        parts = (stream, whole, inner, 0 if frozen else weight)
        counts = (point.stream, point.whole, point.inner, point.weight)
        return sum(part * count for part, count in zip(parts, counts, strict=True))

    point = max(_points(sizes), key=held)
    terms = (
        f"{count} x {part} {name}"
        for count, part, name in (
            (point.stream, stream, "stream"),
            (point.whole, whole, "whole stream"),
            (point.inner, inner, "inner"),
            (0 if frozen else point.weight, weight, "weight"),
        )
        if count
    )
    name = f"backward of the {point.name}"
    formula = " + ".join(terms).replace("+ -", "- ")
    return Line("temporaries", name, held(point), formula, sizes.stack.source)


def _points(sizes: Sizes) -> tuple[_Point, ...]:
    gated = sizes.model.activation in GATED
    matrices = 2 if gated else 1
    left = matrices - (4 if gated else 2)
    cut = int(sizes.residual > 1)
    last = _Point("last matrix", 1, cut, 1, 1)
    inside = _Point("activation", 1, 0, matrices, 0)
    if sizes.tp == 1:
        return last, inside
    # Two matrices have two terms of the gradient, one of which is summed into the other.
    sums = _Point(FIRST, 1, matrices + cut, left, 0)
    again = _again(sizes)
    weights = _Point(FIRST, 1 + cut, 1 + again, left, matrices)
    if not cut:
        return last, inside, sums, weights
    return last, inside, sums, _Point(FIRST, 2, 2 + again, left, 0), weights


def _again(sizes: Sizes) -> int:
    """Whether a gathered or scattered stream is there in two orders."""
    return int(sizes.residual > 1 and sizes.batch > 1)


# ── Ends ──────────────────────────────────────────────────────────────────────


def head(sizes: Sizes) -> tuple[Line, ...]:
    """The backward of the head: gradients of logits and of its weight, and what goes below them.

    Over tp: the gathered input and the gradient of the input with the piece that is kept of it
    (sequence parallelism), or that piece, the gathered input and the gradient of the weight.
    """
    source, logits = sizes.stack.source, sizes.tokens * sizes.vocab
    stream, whole = sizes.stream()[0], sizes.width * sizes.tokens * sizes.model.hidden
    weight = _end_weight(sizes)
    cut, again = int(sizes.residual > 1), _again(sizes)
    below = max(
        (1 + cut + again) * whole + cut * stream,
        cut * stream + (1 + again) * whole + weight,
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
