"""What layers of experts send each microbatch, and their gradients once a step.

Rows of tokens are as many as their experts are chosen: the calls are exact on each rank, and the
bytes are exact over all ranks of ep and etp together, here as they would be on each if all were
chosen alike often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger import shared
from parlay.compiler.spec.blocks import Spec


class Message(NamedTuple):
    """`calls` messages of `elements` each; the dtype is that of the products where it is empty."""

    group: str
    what: str
    collective: str
    dtype: str
    elements: int
    calls: int


def mixed(spec: Spec, chunk: Stage) -> int:
    """Layers of a chunk that have experts."""
    assert spec.model is not None
    experts = spec.model.experts
    if experts is None:
        return 0
    return experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)


def plain(spec: Spec, chunk: Stage) -> int:
    """MLPs of a chunk that every token passes, for themselves or beside experts."""
    assert spec.model is not None
    experts, number = spec.model.experts, mixed(spec, chunk)
    if experts is not None and experts.shared:
        return chunk.layers
    return chunk.layers - number


def again(spec: Spec, chunk: Stage, layers: int) -> int:
    """Of `layers` of a chunk that are computed again as a whole, those with experts; or those whose
    experts alone are."""
    assert spec.train is not None and spec.model is not None
    recompute, experts = spec.train.recompute, spec.model.experts
    if recompute.name == "selective":
        return mixed(spec, chunk) if "experts" in recompute.flags else 0
    if experts is None or not layers:
        return 0
    step = recompute.get("every") or 1
    some = range(chunk.first, chunk.first + layers * step, step)
    return sum(experts.holds(layer) for layer in some)


def messages(spec: Spec, layers: int, *, again: int, share: float = 1) -> Iterator[Message]:
    """Of one microbatch and so many `layers` of experts, of which `again` are computed again.

    A rank receives `share` times the rows that it would if all experts were chosen alike often.
    """
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None
    experts = model.experts
    if experts is None or not layers:
        return
    own = train.micro_batch * train.seq // parallel.cp
    own //= parallel.tp if parallel.sequence_parallel else 1
    rows = int(own * experts.top_k * share) * model.hidden
    ways, forwards = 2 * layers + again, layers + again
    if parallel.ep > 1:
        for what in ("dispatch", "combine"):
            yield Message("ep", what, "all_to_all", "", rows, ways)
        yield Message("ep", "visits of experts", "all_to_all", "int64", experts.count, forwards)
    if parallel.etp > 1:
        etp = parallel.etp
        for what in ("tokens gathered", "tokens scattered"):
            yield Message("etp", what, "all_to_all", "", etp * rows, ways)
        counts = etp * experts.count
        yield Message("etp", "visits of experts", "all_gather", "int64", counts, forwards)
    for axis in ("tp", "cp") if experts.aux_loss else ():
        if getattr(parallel, axis) > 1:
            what = "visits of experts, for their loss"
            yield Message(axis, what, "all_reduce", "int64", experts.count, forwards)


def held(spec: Spec, chunks: Iterable[Stage]) -> int:
    """Elements of routed experts on one rank."""
    parallel = spec.parallel
    rows = shared.rows_of(spec, list(chunks))
    return sum(t * row.on_rank(etp=parallel.etp, ep=parallel.ep) for row, t in rows if row.expert)


def copies(layout: Layout, *, zero: int) -> int:
    """How many ranks hold the same experts; under ZeRO, the same copy of their state."""
    kinds = ("expert_shard", "edp") if zero else ("edp",)
    return next((layout.size(kind) for kind in kinds if kind in layout.kinds), 1)
