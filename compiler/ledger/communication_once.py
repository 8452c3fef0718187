"""What one rank sends once a step, and over the data-parallel ranks with each microbatch."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger import communication_experts as of_experts
from parlay.compiler.ledger import shared, units
from parlay.compiler.ledger.adapters import rank_of
from parlay.compiler.ledger.communication_counter import Counter, Kind
from parlay.compiler.ledger.recipe import GRADIENT_BUCKET, dtypes_of, passes
from parlay.compiler.spec.blocks import Spec


def once_a_step(counter: Counter, spec: Spec, layout: Layout, held: list[Stage]) -> None:
    """Gradients, the weights that follow from them, the loss and the norm, of the chunks `held`."""
    parallel, dtypes = spec.parallel, dtypes_of(spec)
    tp, rows = parallel.tp, shared.trained(spec, held)
    numel = sum(times * row.on_rank(tp=tp) for row, times in rows if not row.expert)
    replicas, batch = parallel.dp * parallel.cp, "dp_cp" if parallel.cp > 1 else "dp"
    sharded = replicas > 1 and parallel.zero > 0
    if replicas > 1 and any(chunk.head for chunk in held):
        counter.add(batch, "all_reduce", "int64", elements=1)  # labels that count
        counter.add(batch, "all_reduce", dtypes.wide, elements=1)  # the loss
    if parallel.tp > 1 and shared.partial(spec):
        counter.add("tp", "all_reduce", dtypes.gradients, elements=shared.whole(spec, held))
    for group, elements in shared.sums(spec, held):
        counter.add(group, "all_reduce", dtypes.gradients, elements=elements)
    _of_experts(counter, spec, layout, held)
    if parallel.pp > 1 and parallel.schedule.name == "dualpipe":
        _mirrored(counter, spec, layout, held, numel)
    if sharded:
        _sharded(counter, spec, layout, held, numel)
    elif replicas > 1:
        for elements in _buckets(numel):
            counter.add(batch, "all_reduce", dtypes.gradients, elements=elements)
    frozen = rank_of(spec) is not None
    if sharded or (parallel.ep * parallel.etp > 1 and not frozen):
        counter.add("world", "all_reduce", dtypes.wide, elements=1)
    elif parallel.tp * parallel.pp > 1:
        group = "_".join(a for a in ("tp", "pp") if getattr(parallel, a) > 1)
        counter.add(group, "all_reduce", dtypes.wide, elements=1)


def _of_experts(counter: Counter, spec: Spec, layout: Layout, held: list[Stage]) -> None:
    """Gradients and weights of routed experts over the ranks that hold the same ones."""
    numel, dtypes = of_experts.held(spec, held), dtypes_of(spec)
    ranks = of_experts.copies(layout, zero=spec.parallel.zero)
    if rank_of(spec) is not None:  # frozen: they are whole, or gathered where they are used
        routed = units.expert_traffic(spec, held, ranks)
        if spec.parallel.zero == 3 and routed is not None:
            group = "expert_shard" if _copied(spec) else "edp"
            weights = Kind(group, "all_gather", dtypes.compute)
            counter.send(weights, routed.gathered, passes(spec))
        return
    if spec.parallel.zero == 1 and _copied(spec):
        for elements in _buckets(-(-numel // ranks)):
            counter.add("expert_replicate", "all_reduce", dtypes.gradients, elements=elements)
    if not numel or ranks == 1:
        return
    group = "expert_shard" if _copied(spec) else "edp"
    if spec.parallel.zero == 0:
        for elements in _buckets(numel):
            counter.add("edp", "all_reduce", dtypes.gradients, elements=elements)
        return
    if spec.parallel.zero > 1:
        traffic = units.expert_traffic(spec, held, ranks)
        assert traffic is not None
        count = passes(spec)
        counter.send(Kind(group, "reduce_scatter", dtypes.gradients), traffic.reduced, count)
        weights = Kind(group, "all_gather", dtypes.compute)
        if spec.parallel.zero == 2:
            counter.send(weights, traffic.reduced)
        else:
            counter.send(weights, traffic.gathered, count)
        return
    padded = -(-numel // ranks) * ranks
    counter.add(group, "reduce_scatter", dtypes.gradients, elements=padded)
    counter.add(group, "all_gather", dtypes.compute, elements=padded)


def _mirrored(counter: Counter, spec: Spec, layout: Layout, held: list[Stage], numel: int) -> None:
    """DualPipe: the halves of the loss, and what a rank owns of the gradients, over the two ranks
    that hold the same stages."""
    dtypes, zero = dtypes_of(spec), spec.parallel.zero
    if any(chunk.head for chunk in held):
        counter.add("mirror", "all_reduce", dtypes.wide, elements=1)
    ranks = spec.parallel.shard if zero else 1
    experts = of_experts.copies(layout, zero=zero) if zero else 1
    for part, owners in ((numel, ranks), (of_experts.held(spec, held), experts)):
        for elements in _buckets(-(-part // owners)):
            counter.add("mirror", "all_reduce", dtypes.gradients, elements=elements)


def _copied(spec: Spec) -> bool:
    """Whether a part of the replicas shares one copy of the state, and the rest has others."""
    return spec.parallel.shard < spec.parallel.dp * spec.parallel.cp


def _sharded(counter: Counter, spec: Spec, layout: Layout, held: list[Stage], numel: int) -> None:
    """ZeRO: gradients to the ranks that own them, weights to those that use them.

    1: one buffer, once a step. 2: units, their gradients each microbatch. 3: their weights, too.
    Adapters are one buffer; what they adapt is gathered in units.
    Where `shard` is a part of the replicas, what a rank owns is summed over the others.
    """
    parallel, dtypes, count = spec.parallel, dtypes_of(spec), passes(spec)
    ranks, frozen = parallel.shard, rank_of(spec) is not None
    group = "shard" if _copied(spec) else "dp_cp" if parallel.cp > 1 else "dp"

    def send(collective: str, dtype: str, sent: units.Sent, times: int = 1) -> None:
        if ranks > 1:
            counter.send(Kind(group, collective, dtype), sent, times)

    if frozen and parallel.zero == 3:
        send("all_gather", dtypes.compute, units.gathered(spec, held), count)
    if parallel.zero == 1 or frozen:
        owned = -(-numel // ranks)
        for collective, dtype in (
            ("reduce_scatter", dtypes.gradients),
            ("all_gather", dtypes.compute),
        ):
            send(collective, dtype, units.Sent(1, owned * ranks))
    else:
        each, gathered, owned = units.traffic(spec, held)
        send("reduce_scatter", dtypes.gradients, each, count)
        if parallel.zero == 2:
            send("all_gather", dtypes.compute, each)
        else:
            send("all_gather", dtypes.compute, gathered, count)
        # Units of experts are owned in the same buffer.
        together = of_experts.copies(layout, zero=parallel.zero)
        routed = units.expert_traffic(spec, held, together)
        owned += of_experts.held(spec, held) if routed is None else routed.owned
    if _copied(spec):
        for elements in _buckets(owned):
            counter.add("replicate", "all_reduce", dtypes.gradients, elements=elements)


def _buckets(numel: int) -> Iterator[int]:
    full, rest = divmod(numel, GRADIENT_BUCKET)
    yield from [GRADIENT_BUCKET] * full
    if rest:
        yield rest
