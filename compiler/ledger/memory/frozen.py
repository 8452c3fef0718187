"""What frozen matrices keep: no input, which only the gradient of a weight reads. So it is in
PyTorch's products, and in Transformer Engine's linears (`backward_needs_input`).

What is kept is for adapters; routed experts have none. In Transformer Engine's neither has the
router, and adapters' own linears are not cut over the sequence: the input of a column side is kept
whole, as it was gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parlay.compiler.ledger.memory.mixture import routed as routed_visits
from parlay.compiler.ledger.memory.record import Saved
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.ledger.time import efficiency
from parlay.compiler.spec.blocks import GATED

OF_EXPERTS = ("router input in fp32", "tokens dispatched to experts")
"""Inputs of matrices without adapters in a layer of experts."""
OF_ROUTED = ("tokens dispatched to experts", "expert activation")
OF_MLP = ("mlp input", "mlp activation", "low-rank features of mlp")
"""Those of an MLP that are kept for its adapters alone."""


def routed(sizes: Sizes, rows: Sequence[Saved]) -> Iterator[Saved]:
    """Those of `rows`, what a layer of the emitted code saves, without inputs of routed experts:
    the tokens that they get, and the product that their last matrix reads, one tensor of what
    their activation keeps."""
    mixture = sizes.model.experts
    for row in rows:
        if not sizes.stack.traced or mixture is None or row.name not in OF_ROUTED:
            yield row
        elif row.name == "expert activation":
            features, visits = -(-mixture.ffn // sizes.parallel.etp), routed_visits(sizes)
            yield row._replace(
                value_bytes=row.value_bytes - int(sizes.kept * visits * features),
                formula=f"{row.formula} - {sizes.kept:g} x {visits} visits x {features}",
            )


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
