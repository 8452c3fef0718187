"""What lives only while a layer runs: working gradients, what is made again, buffers."""

from __future__ import annotations

from parlay.compiler.ledger.memory import backward
from parlay.compiler.ledger.memory.chunk import LayerKept
from parlay.compiler.ledger.memory.mixture import routed
from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED


def backward_lines(
    sizes: Sizes, kept: LayerKept, largest_weight: int = 0, *, put_off: bool = False
) -> tuple[Line, ...]:
    """The backward of one layer: what it makes again, and its gradients under way.

    Gradients: two of the residual stream, the gathered input, and one for each inner tensor of the
    MLP but its input, and the gradient of one weight beside them. Those of the emitted code are
    followed operator by operator, without those of weights where they are `put_off`.
    """
    lines: list[Line] = []
    source = sizes.stack.source
    recompute = sizes.train.recompute.name
    again = kept.whole_bytes - (kept.input_bytes if recompute == "full" else kept.kept_bytes)
    if recompute != "none" and again > 0:
        lines.append(
            Line("temporaries", "one layer computed again", again, f"{again}", "arXiv:1604.06174")
        )
    if sizes.stack.traced:
        return (*lines, backward.most(sizes, kept.saved, experts=kept.experts, put_off=put_off))
    stream, words = sizes.stream()
    inner, formula = _inner(sizes, experts=kept.experts)
    gathered = stream * sizes.residual
    lines.append(
        Line(
            "temporaries",
            "gradients of one layer's activations",
            2 * stream + gathered + inner,
            f"2 x {words} + {gathered} + {formula}",
            source,
        )
    )
    if sizes.stack.weight_gradient:
        value = sizes.width * largest_weight
        lines.append(
            Line(
                "temporaries",
                "gradient of one weight",
                value,
                f"{sizes.width} x {largest_weight}",
                source,
            )
        )
    return tuple(lines)


def _inner(sizes: Sizes, *, experts: bool) -> tuple[int, str]:
    tensors = 3 if sizes.model.activation in GATED else 2
    mixture = sizes.model.experts
    if experts and mixture is not None:
        features, tokens = -(-mixture.ffn // sizes.parallel.etp), routed(sizes)
    else:
        features, tokens = -(-sizes.model.ffn // sizes.tp), sizes.tokens
    value = tensors * sizes.width * tokens * features
    return value, f"{tensors} x {sizes.width} x {tokens} x {features}"


def attention_lines(sizes: Sizes) -> tuple[Line, ...]:
    """What context parallelism holds besides while attention runs; `backward.py` has that of the
    emitted code.

    ring: two blocks of keys and values, the one in use and the one under way. allgather: those of
    the whole sequence. ulysses: queries, keys and values on their way, once more.
    """
    cp, model = sizes.parallel.cp, sizes.model
    if cp == 1 or sizes.stack.traced:
        return ()
    if model.mla is None:
        pair = sizes.kv_heads * 2 * model.head_dim
        query = sizes.heads * model.head_dim
    else:
        query = sizes.heads * (model.mla.nope_dim + model.mla.rope_dim)
        pair = query + sizes.heads * model.mla.v_dim
    features = {
        "ring": 2 * pair,
        "allgather": cp * pair,
        "ulysses": query + pair,
        "ulysses_ring": query + 3 * pair,
    }[sizes.parallel.cp_method.name]
    value, formula = sizes.inner(features, sizes.width)
    name = f"keys and values of cp ({sizes.parallel.cp_method.name})"
    return (Line("buffers", name, value, formula, "arXiv:2310.01889; arXiv:2309.14509"),)


def dispatch_lines(sizes: Sizes) -> tuple[Line, ...]:
    """The buffers of experts: tokens on their way out and back, 2·k·h bytes a token each.

    Those of the emitted code are in `backward.py`.
    """
    if sizes.model.experts is None or sizes.stack.traced:
        return ()
    visits = routed(sizes)
    value = 2 * sizes.width * visits * sizes.model.hidden
    formula = f"2 x {sizes.width} x {visits} visits x {sizes.model.hidden}"
    return (Line("buffers", "tokens on their way to and from experts", value, formula, "dispatch"),)
