"""What the first half of a split backward leaves of one microbatch for the second.

The first half leaves for each linear its input and the gradient of its output (`runtime/
deferred.py`); all else that the forward saved is gone, and what is computed again for it is kept.
Inputs of columns are pieces of the sequence where that is cut, gradients of rows are whole. Routed
experts, their router, and the matrices of latents over tp have their gradients in the first half.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

Lines = tuple[Line, ...]


class PutOff(NamedTuple):
    """What is the same on all stages: bytes that the first half leaves of a layer, by whether it
    has experts, and of the head, with the arithmetic, and the lines of their weight gradients;
    `behind` is the head's less the final norm, which is there while the layers are whole."""

    layers: tuple[tuple[int, str], ...]
    head: tuple[int, str]
    weights: Lines
    of_head: Lines
    behind: Line
    normed: Line

    @classmethod
    def of(cls, sizes: Sizes) -> PutOff:
        """That of a job."""
        value, words = head(sizes)
        lines = weights(sizes), head_weights(sizes)
        kinds = (False,) if sizes.model.experts is None else (False, True)
        layers = tuple([layer(sizes, experts=kind) for kind in kinds])
        gone = normed(sizes)
        behind = line(value - gone, f"{words} - {gone}")
        return cls(layers, (value, words), *lines, behind, line(-gone, f"- {gone}"))


def line(value: int, formula: str) -> Line:
    """What is left of so many bytes."""
    name = "what weight gradients are made of"
    return Line("activations", name, value, formula, "arXiv:2401.10241, section 4")


def normed(sizes: Sizes) -> int:
    """What the final norm and the head have saved of a microbatch, logits left out."""
    both = 2 if sizes.train.lora is None else 1
    return both * sizes.stream()[0] if sizes.model.final_norm else 0


def layer(sizes: Sizes, *, experts: bool = False) -> tuple[int, str]:
    """Bytes that one layer leaves, and how they come about.

    Inputs: of attention and MLP, of the last matrix of each. Gradients: of queries, keys and
    values, of the MLP's first matrices, of the stream behind each last matrix. Of latents: what
    they are made of and their gradients; on one rank of tp they themselves besides, and the
    gradients of what is made of them. Of a layer of experts: shared ones alone.
    """
    model, width = sizes.model, sizes.width
    inner = _inner(sizes, experts=experts)
    sides = 2 if inner else 1
    inputs = sides
    if model.parallel_blocks and inner:
        sides, inputs = 1, 1 if model.shared_norm else 2
    stream, words = sizes.stream()
    whole, whole_words = _whole(sizes)
    attention, pieces = _attention(sizes)
    matrices = 2 if model.activation in GATED else 1
    rest, rest_words = sizes.inner(attention + (1 + matrices) * inner, width)
    value = inputs * stream + sides * whole + rest
    formula = f"{inputs} x {words} + {sides} x {whole_words} + {rest_words}"
    if pieces:
        each = sizes.tokens // sizes.residual
        value += width * each * pieces
        formula += f" + {width} x {each} x {pieces}"
    return value, formula


def feed_forward(sizes: Sizes, *, experts: bool) -> int:
    """Bytes of its feed-forward half."""
    inner = _inner(sizes, experts=experts)
    if not inner:
        return 0
    matrices = 2 if sizes.model.activation in GATED else 1
    rest = sizes.inner((1 + matrices) * inner, sizes.width)[0]
    return sizes.stream()[0] + _whole(sizes)[0] + rest


def _inner(sizes: Sizes, *, experts: bool) -> int:
    """Inner features on a rank of the MLP whose weight gradients are put off."""
    mixture = sizes.model.experts
    features = sizes.model.ffn
    if experts and mixture is not None:
        features = mixture.shared * mixture.shared_ffn
    return -(-features // sizes.tp)


def _attention(sizes: Sizes) -> tuple[int, int]:
    """Features of all tokens, and of a rank's piece of them."""
    mla = sizes.model.mla
    query, key, value, keys = sizes.widths
    if mla is None:
        return sizes.heads * (value + query) + keys * (key + value), 0
    low = (mla.q_rank or 0) + mla.kv_rank + mla.rope_dim
    # The output; over tp a query that is not compressed.
    made = sizes.heads * (value if mla.q_rank and sizes.tp > 1 else value + query)
    if sizes.tp > 1:
        return made, low
    return made + sizes.heads * (mla.nope_dim + value), 2 * low - mla.rope_dim


def head(sizes: Sizes) -> tuple[int, str]:
    """The input of the head and the gradient of its logits."""
    stream, words = sizes.stream()
    logits = sizes.width * sizes.tokens * sizes.vocab
    return stream + logits, f"{words} + {sizes.width} x {sizes.tokens} x {sizes.vocab}"


def weights(sizes: Sizes) -> Lines:
    """The most that gradients of weights hold beside what a layer has left, less what of it is
    gone: over tp those of the matrices that read one input, which is gathered for them, and while
    the ones before are made."""
    model = sizes.model
    kinds = [] if model.experts is None else [True]
    if model.experts is None or model.experts.layers_before(model.layers) < model.layers:
        kinds.append(False)
    held = max(most for kind in kinds for most in _weights(sizes, experts=kind))
    return (_of_weights(sizes, held),)


def head_weights(sizes: Sizes) -> Lines:
    """The gradient of the head's weight, and its input, gathered."""
    gathered = _whole(sizes)[0] if sizes.residual > 1 else 0
    return (_of_weights(sizes, sizes.width * sizes.model.hidden * sizes.vocab + gathered),)


def _of_weights(sizes: Sizes, held: int) -> Line:
    return Line("temporaries", "gradients of weights", held, f"{held}", sizes.stack.source)


def _weights(sizes: Sizes, *, experts: bool) -> Iterator[int]:
    """At each linear of a layer, the last matrix first."""
    model, row = sizes.model, sizes.width * sizes.model.hidden
    whole = _whole(sizes)[0]
    gathered = whole if sizes.residual > 1 else 0
    if inner := _inner(sizes, experts=experts):
        yield row * inner + gathered
        if sizes.tp > 1:
            matrices = 2 if model.activation in GATED else 1
            yield matrices * row * inner + gathered - sizes.inner(inner, sizes.width)[0] - whole
    query, key, value, keys = sizes.widths
    done = feed_forward(sizes, experts=experts)
    yield row * sizes.heads * value + gathered - done
    if model.mla is None or model.mla.q_rank is None:
        into = sizes.heads * query
        if sizes.tp > 1 and model.mla is None:
            into += keys * (key + value)
        output = sizes.inner(sizes.heads * value, sizes.width)[0]
        yield row * into + gathered - done - output - whole


def _whole(sizes: Sizes) -> tuple[int, str]:
    value = sizes.width * sizes.tokens * sizes.model.hidden
    return value, f"{sizes.width} x {sizes.tokens} x {sizes.model.hidden}"
