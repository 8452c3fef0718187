"""What frozen matrices keep in Transformer Engine's linears: no input, which only the gradient of a
weight reads (`backward_needs_input`).

What is kept is for adapters, whose own linears are not cut over the sequence: the input of a column
side whole, as it was gathered. Routed experts and the router have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parlay.compiler.ledger.memory.record import Saved
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.ledger.time import efficiency
from parlay.compiler.spec.blocks import GATED

OF_EXPERTS = ("router input in fp32", "tokens dispatched to experts")
"""Inputs of matrices without adapters in a layer of experts."""
OF_MLP = ("mlp input", "mlp activation", "low-rank features of mlp")
"""Those of an MLP that are kept for its adapters alone."""


def kept(sizes: Sizes, rows: Sequence[Saved], *, experts: bool) -> Iterator[Saved]:
    """Those of `rows`, what a layer saves, that are kept under adapters."""
    gated = sizes.model.activation in GATED
    # What goes into the last matrix; the gradient of the probabilities reads a plain activation's
    # product before they weigh it.
    last = "expert activation" if gated else "expert activation, weighed"
    gone = [*OF_EXPERTS, last]
    mixture = sizes.model.experts
    alone = experts and mixture is not None and not mixture.shared
    if alone or efficiency.adapters_of(sizes.train.stack) == "qkv":
        gone += OF_MLP
    for row in rows:
        if row.name in gone:
            continue
        if row.name in ("attention input", "mlp input") and sizes.residual > 1:
            value, formula = sizes.inner(sizes.model.hidden, sizes.width)
            yield row._replace(value_bytes=value, formula=formula)
            continue
        yield row
