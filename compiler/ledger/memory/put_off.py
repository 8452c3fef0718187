"""What the first half of a split backward leaves of one microbatch for the second.

The first half leaves for each linear its input and the gradient of its output (`runtime/
deferred.py`); all else that the forward saved is gone, and what is computed again for it is kept.
Inputs of columns are pieces of the sequence where that is cut, gradients of rows are whole.
"""

from __future__ import annotations

from typing import NamedTuple

from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

Lines = tuple[Line, ...]


class PutOff(NamedTuple):
    """What is the same on all stages: bytes that the first half leaves of a layer and of the head,
    with the arithmetic, and the lines of their weight gradients."""

    layer: tuple[int, str]
    head: tuple[int, str]
    weights: Lines
    of_head: Lines
    behind: Line

    @classmethod
    def of(cls, sizes: Sizes) -> PutOff:
        """That of a job."""
        ended = head(sizes)
        lines = weights(sizes), weights(sizes, head=True)
        return cls(layer(sizes), ended, *lines, line(*ended))


def line(value: int, formula: str) -> Line:
    """What is left of so many bytes."""
    name = "what weight gradients are made of"
    return Line("activations", name, value, formula, "arXiv:2401.10241, section 4")


def layer(sizes: Sizes) -> tuple[int, str]:
    """Bytes that one dense layer leaves, and how they come about.

    Inputs: of attention and MLP, of the last matrix of each. Gradients: of queries, keys and
    values, of the MLP's first matrices, of the stream behind each last matrix.
    """
    model, width = sizes.model, sizes.width
    sides = 1 if model.parallel_blocks else 2
    inputs = 1 if model.parallel_blocks and model.shared_norm else 2
    stream, words = sizes.stream()
    whole, whole_words = _whole(sizes)
    attention = (2 * sizes.heads + 2 * sizes.kv_heads) * model.head_dim
    matrices = 2 if model.activation in GATED else 1
    inner = (1 + matrices) * -(-model.ffn // sizes.tp)
    rest, rest_words = sizes.inner(attention + inner, width)
    value = inputs * stream + sides * whole + rest
    return value, f"{inputs} x {words} + {sides} x {whole_words} + {rest_words}"


def head(sizes: Sizes) -> tuple[int, str]:
    """The input of the head and the gradient of its logits."""
    stream, words = sizes.stream()
    logits = sizes.width * sizes.tokens * sizes.vocab
    return stream + logits, f"{words} + {sizes.width} x {sizes.tokens} x {sizes.vocab}"


def weights(sizes: Sizes, *, head: bool = False) -> Lines:
    """The gradients of a layer's largest linear, or of the head: over tp those of the matrices that
    read one input, which is gathered for them."""
    model = sizes.model
    matrices = 2 if sizes.tp > 1 and model.activation in GATED else 1
    rows = sizes.vocab if head else matrices * -(-model.ffn // sizes.tp)
    gradients = sizes.width * model.hidden * rows
    gathered = _whole(sizes)[0] if sizes.residual > 1 else 0
    value, source = gradients + gathered, sizes.stack.source
    return (Line("temporaries", "gradients of weights", value, f"{value}", source),)


def _whole(sizes: Sizes) -> tuple[int, str]:
    value = sizes.width * sizes.tokens * sizes.model.hidden
    return value, f"{sizes.width} x {sizes.tokens} x {sizes.model.hidden}"
