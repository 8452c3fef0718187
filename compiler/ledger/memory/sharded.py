"""What ZeRO 2 and 3 hold besides the shards: gathered layers, and gradients before they leave."""

from __future__ import annotations

from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.spec.blocks import Spec

FSDP = "arXiv:2304.11277, section 3"


def gathered_lines(spec: Spec, *, layer: int, end: int, width: int) -> tuple[Line, ...]:
    """With ZeRO 3, the weights in use and the next ones: two layers, or an end and a layer.

    `layer` and `end` are the parameters on a rank of the largest layer and of embedding or head.
    """
    if spec.parallel.zero < 3:
        return ()
    value = width * max(2 * layer, end + layer)
    first, second = (end, layer) if end > layer else (layer, layer)
    formula = f"{width} x ({first} + {second})"
    return (Line("gathered", "gathered weights, the next prefetched", value, formula, FSDP),)


def unreduced_lines(spec: Spec, *, layer: int, each: float) -> tuple[Line, ...]:
    """With ZeRO 2 and 3, one layer's gradients while they are reduce-scattered."""
    if spec.parallel.zero < 2 or not each:
        return ()
    value = int(each * layer)
    return (
        Line(
            "buffers", "one layer's gradients before they leave", value, f"{each:g} x {layer}", FSDP
        ),
    )
