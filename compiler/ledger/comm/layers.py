"""Messages inside a layer, each microbatch: tensor, context and expert parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.comm.context import Job
from parlay.compiler.ledger.comm.record import Raw

# ── Tensor parallelism ────────────────────────────────────────────────────────


def tensor_parallel(job: Job, chunk: Stage) -> Iterator[Raw]:
    """Each sublayer that is cut over tp: 2 all-reduces, or 3 gathers and 2 scatters of b·s·h.

    Without sequence parallelism one all-reduce forward and one backward (arXiv:1909.08053): 4 a
    layer. With it, forward a gather and a scatter; backward the gradient's gather, the input's
    once more and a scatter (arXiv:2205.05198). Recomputed layers send their forward's again.
    """
    if job.parallel.tp == 1:
        return
    experts = job.model.experts
    mixed = job.mixed(chunk)
    shared = mixed if experts is not None and experts.shared else 0
    sublayers = chunk.layers + (chunk.layers - mixed) + shared
    again = 1 if job.recomputes else 0
    size = job.tokens * job.model.hidden * job.width
    count = job.microbatches
    shape = f"{job.width} B x {job.tokens} tokens x {job.model.hidden}"
    dtype = job.dtypes.compute
    if not job.parallel.sequence_parallel:
        calls = sublayers * (2 + again) * count
        yield Raw("tp", "layers", "all_reduce", dtype, size, calls, False, shape)
        return
    yield Raw(
        "tp", "layers", "all_gather", dtype, size, sublayers * (3 + again) * count, False, shape
    )
    yield Raw(
        "tp", "layers", "reduce_scatter", dtype, size, sublayers * (2 + again) * count, False, shape
    )


def ends(job: Job, chunk: Stage) -> Iterator[Raw]:
    """Embedding, head and loss over tp; the loss sums [b, s] and [2, b, s] at fp32."""
    if job.parallel.tp == 1:
        return
    size = job.tokens * job.model.hidden * job.width
    shape = f"{job.width} B x {job.tokens} tokens x {job.model.hidden}"
    count, dtype = job.microbatches, job.dtypes.compute
    if chunk.embedding:
        if job.parallel.sequence_parallel:
            for collective in ("reduce_scatter", "all_gather"):
                yield Raw("tp", "embedding", collective, dtype, size, count, False, shape)
        else:
            yield Raw("tp", "embedding", "all_reduce", dtype, size, count, False, shape)
    if not chunk.head:
        return
    heads = count * (1 + job.model.mtp_layers)
    if job.parallel.sequence_parallel:
        yield Raw("tp", "head", "all_gather", dtype, size, 2 * heads, False, shape)
        yield Raw("tp", "head", "reduce_scatter", dtype, size, heads, False, shape)
    else:
        yield Raw("tp", "head", "all_reduce", dtype, size, heads, False, shape)
    for numbers in (1, 2):
        yield Raw(
            "tp",
            "loss",
            "all_reduce",
            job.dtypes.wide,
            4 * numbers * job.tokens,
            heads,
            False,
            f"4 B x {numbers} x {job.tokens} tokens",
        )


# ── Context parallelism ───────────────────────────────────────────────────────


def context_parallel(job: Job, chunk: Stage) -> Iterator[Raw]:
    """Keys and values of every layer, by method.

    ring (arXiv:2310.01889): the block of keys and values travels cp - 1 times forward, cp - 1 times
    backward with cp times its gradient. allgather (arXiv:2407.21783): one gather forward, one
    backward, one scatter of the gradient. ulysses (arXiv:2309.14509): all-to-alls of q, k, v and
    the output, the same backward.
    """
    cp = job.parallel.cp
    if cp == 1:
        return
    model, method = job.model, job.parallel.cp_method
    heads = -(-model.heads // job.parallel.tp)
    if model.mla is None:
        query, pair = heads * model.head_dim, 2 * -(-model.kv_heads // job.parallel.tp)
        pair, out = pair * model.head_dim, query
    else:
        query = heads * (model.mla.nope_dim + model.mla.rope_dim)
        out = heads * model.mla.v_dim
        pair = query + out
    layers = chunk.layers * job.microbatches
    again = 1 if job.recomputes else 0
    dtype, width, tokens = job.dtypes.compute, job.width, job.tokens

    def raw(what: str, collective: str, features: int, calls: int, ranks: int | None) -> Raw:
        hidden = what == "ring attention"
        formula = f"{width} B x {tokens} tokens x {features}"
        size = width * tokens * features
        return Raw("cp", what, collective, dtype, size, calls, hidden, formula, ranks)

    outer = cp
    if method.name.startswith("ulysses"):
        inner = cp if method.name == "ulysses" else method["inner"]
        outer = cp // inner
        for name, features in (("queries", query), ("keys and values", pair), ("output", out)):
            calls = layers * (2 + again)
            yield raw(f"ulysses {name}", "all_to_all", features, calls, inner)
        pair //= inner
        tokens *= inner
    if method.name == "allgather":
        yield raw("keys and values", "all_gather", cp * pair, layers * (2 + again), None)
        yield raw("gradient of keys and values", "reduce_scatter", cp * pair, layers, None)
    elif method.name != "ulysses" and outer > 1:
        passes = (outer - 1) * (2 + again) + outer
        for collective in ("send", "recv"):
            yield raw("ring attention", collective, pair, layers * passes, outer)


# ── Expert parallelism ────────────────────────────────────────────────────────


def expert_parallel(job: Job, chunk: Stage) -> Iterator[Raw]:
    """Every layer of experts: two all-to-alls forward, two backward (arXiv:2006.16668).

    A rank sends its own tokens·top_k·hidden; the busiest one `imbalance` times that. Ranks of etp
    gather what they received and scatter what they made.
    """
    experts, mixed = job.model.experts, job.mixed(chunk)
    if experts is None or not mixed:
        return
    own = job.tokens // job.cut
    visits = int(own * experts.top_k * (experts.capacity or experts.imbalance))
    size = job.width * visits * job.model.hidden
    formula = f"{job.width} B x {own} tokens x {experts.top_k} experts x {job.model.hidden}"
    passes = mixed * job.microbatches * (2 + (1 if job.recomputes else 0))
    dtype, etp = job.dtypes.compute, job.parallel.etp
    if job.parallel.ep > 1:
        for what in ("dispatch", "combine"):
            yield Raw("ep", what, "all_to_all", dtype, size, passes, False, formula)
    if etp > 1:
        for collective in ("all_gather", "reduce_scatter"):
            words = f"{formula} x {etp}"
            yield Raw("etp", "tokens", collective, dtype, etp * size, passes, False, words)
