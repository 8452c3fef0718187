"""Messages inside a layer, each microbatch: tensor, context and expert parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from parlay.compiler.ledger import communication_experts as of_experts
from parlay.compiler.ledger.adapters import cuts_both, low_rank, messages, rank_of, unasked
from parlay.compiler.ledger.comm.context import Job, Load
from parlay.compiler.ledger.comm.record import Raw
from parlay.compiler.ledger.latent import Latents, latents
from parlay.compiler.ledger.recipe import BYTES
from parlay.compiler.ledger.time import efficiency

# ── Tensor parallelism ────────────────────────────────────────────────────────


def tensor_parallel(job: Job, load: Load) -> Iterator[Raw]:
    """Each sublayer that is cut over tp: 2 all-reduces, or 3 gathers and 2 scatters of b·s·h.

    Without sequence parallelism one all-reduce forward and one backward (arXiv:1909.08053): 4 a
    layer. With it, forward a gather and a scatter; backward the gradient's gather, the input's
    once more and a scatter (arXiv:2205.05198). Recomputed layers send their forward's again.
    Latents of attention travel in the place of its column side (`latent.py`).
    """
    if job.parallel.tp == 1:
        return
    experts = job.model.experts
    shared = load.mixed if experts is not None and experts.shared else 0
    sublayers = 2 * load.layers - load.mixed + shared
    columns, rows = _again(job, load)
    low = latents(job.model)
    narrow = load.layers if low is not None and not low.stream else 0
    size = job.tokens * job.model.hidden * job.width
    count = job.microbatches
    shape = f"{job.width} B x {job.tokens} tokens x {job.model.hidden}"
    dtype = job.dtypes.compute

    def raw(collective: str, calls: int) -> Raw:
        return Raw("tp", "layers", collective, dtype, size, calls * count, False, shape)

    rank = rank_of(job.spec)
    asked = sublayers - narrow
    if rank is not None:  # what no adapter stands before asks for no gradient
        asked -= load.embedding * unasked(job.model)
    if job.parallel.sequence_parallel:
        columns -= load.again if narrow else 0
        # Of frozen weights nothing is gathered again.
        gathers = sublayers - narrow if rank is not None else 2 * (sublayers - narrow)
        yield raw("all_gather", gathers + sublayers + columns)
        yield raw("reduce_scatter", asked + sublayers + rows)
    else:
        yield raw("all_reduce", asked + sublayers + rows)
    if rank is not None:
        yield from _of_adapters(job, load, rank)
    if low is not None:
        yield from _latents(job, load, low)
    if job.model.qk_norm == "full":
        # The sums of squares of queries and keys forward, as many sums backward.
        wide = job.dtypes.wide
        layers = 2 * load.layers + load.again
        formula = f"{BYTES[wide]} B x 2 x {job.tokens} tokens"
        size = BYTES[wide] * 2 * job.tokens
        yield Raw(
            "tp", "norms of all heads", "all_reduce", wide, size, layers * count, False, formula
        )


def _latents(job: Job, load: Load, low: Latents) -> Iterator[Raw]:
    """Latents of attention: one gather forward, one of what weights need and a scatter backward;
    without sequence parallelism the sum of their gradients."""

    def raw(collective: str, features: int, layers: int) -> Raw:
        size = job.width * job.tokens * features
        formula = f"{job.width} B x {job.tokens} tokens x {features}"
        calls, dtype = layers * job.microbatches, job.dtypes.compute
        return Raw("tp", "latents", collective, dtype, size, calls, False, formula)

    if not job.parallel.sequence_parallel:
        yield raw("all_reduce", low.sent, load.layers)
        return
    yield raw("all_gather", low.sent, load.layers + load.again)
    yield raw("all_gather", low.again, load.layers)
    yield raw("reduce_scatter", low.sent, load.layers)


def _of_adapters(job: Job, load: Load, rank: int) -> Iterator[Raw]:
    """What adapters send besides, by whose software is priced."""
    if cuts_both(job.train):
        yield from _of_parallel_adapters(job, load, rank)
    elif job.parallel.sequence_parallel:
        yield from _low_rank(job, load, rank)


def _low_rank(job: Job, load: Load, rank: int) -> Iterator[Raw]:
    """Low-rank features beside what sublayers read: a gather forward, a scatter backward."""
    dense = load.layers - load.mixed
    both = (load.again, load.again - load.routed)
    again = both if load.again else (0, dense if job.repeats("mlp") else 0)
    numbers = zip(low_rank(job.model, rank), (load.layers, dense), again, strict=True)
    for features, layers, repeated in numbers:
        size = job.width * job.tokens * features
        formula = f"{job.width} B x {job.tokens} tokens x {features}"
        calls = (("all_gather", layers + repeated), ("reduce_scatter", layers))
        for collective, times in calls:
            number, dtype = times * job.microbatches, job.dtypes.compute
            yield Raw("tp", "adapters", collective, dtype, size, number, False, formula)


def _of_parallel_adapters(job: Job, load: Load, rank: int) -> Iterator[Raw]:
    """What adapters send that are linears over tp of their own, both sides cut."""
    model, dense = job.model, load.layers - load.mixed
    shared = model.experts.shared * model.experts.shared_ffn if model.experts is not None else 0
    inputs = efficiency.of(job.spec).adapters == "qkv"
    sequence = job.parallel.sequence_parallel
    sent: Counter[tuple[str, int]] = Counter()
    for ffn, layers, again in (
        (model.ffn, dense, load.again - load.routed),
        (shared, load.mixed, load.routed),
    ):
        for one in messages(model, rank, ffn, sequence=sequence, together=True, inputs=inputs):
            times = one.forward * (layers + again) + one.backward * layers
            sent[one.collective, one.features] += times
    if not sequence and model.mla is None:
        # What comes before the first adapters asks for no gradient.
        sent["all_reduce", model.hidden] -= load.embedding
    for (collective, features), times in sent.items():
        size = job.width * job.tokens * features
        formula = f"{job.width} B x {job.tokens} tokens x {features}"
        calls, dtype = times * job.microbatches, job.dtypes.compute
        if calls > 0:
            yield Raw("tp", "adapters", collective, dtype, size, calls, False, formula)


def _again(job: Job, load: Load) -> tuple[int, int]:
    """Column sides (gathers) and row sides (sums) that recompute sends again.

    A checkpoint that stops early leaves out the sum behind a layer's last product, but where a norm
    stands behind that.
    """
    experts, early = job.model.experts, job.stops_early
    both = load.routed if experts is not None and experts.shared else 0
    if load.again:
        dense = load.again - load.routed
        spared = dense if early and job.model.norm_placement == "before" else 0
        return load.again + dense + both, load.again + dense + both - spared
    columns = rows = 0
    if job.repeats("mlp"):
        columns += load.layers - load.mixed
        rows += 0 if early else load.layers - load.mixed
    if job.repeats("experts") and experts is not None and experts.shared:
        columns, rows = columns + load.mixed, rows + load.mixed
    return columns, rows


def ends(job: Job, load: Load) -> Iterator[Raw]:
    """Embedding, head and loss over tp; the loss sums [b, s] and [2, b, s], wide."""
    if job.parallel.tp == 1:
        return
    size = job.tokens * job.model.hidden * job.width
    shape = f"{job.width} B x {job.tokens} tokens x {job.model.hidden}"
    count, dtype = job.microbatches, job.dtypes.compute
    trains = rank_of(job.spec) is None
    if load.embedding:
        calls = count * load.embedding
        if job.parallel.sequence_parallel:
            there = ("reduce_scatter", "all_gather") if trains else ("reduce_scatter",)
            for collective in there:
                yield Raw("tp", "embedding", collective, dtype, size, calls, False, shape)
        else:
            yield Raw("tp", "embedding", "all_reduce", dtype, size, calls, False, shape)
    if not load.head:
        return
    heads = count * load.head * (1 + job.model.mtp_layers)
    if job.parallel.sequence_parallel:
        gathers = 2 * heads if trains else heads
        yield Raw("tp", "head", "all_gather", dtype, size, gathers, False, shape)
        yield Raw("tp", "head", "reduce_scatter", dtype, size, heads, False, shape)
    else:
        yield Raw("tp", "head", "all_reduce", dtype, size, heads, False, shape)
    wide, each = job.dtypes.wide, BYTES[job.dtypes.wide]
    for numbers in (1, 2):
        formula = f"{each} B x {numbers} x {job.tokens} tokens"
        message = each * numbers * job.tokens
        yield Raw("tp", "loss", "all_reduce", wide, message, heads, False, formula)


# ── Context parallelism ───────────────────────────────────────────────────────


def context_parallel(job: Job, load: Load) -> Iterator[Raw]:
    """Keys and values of every layer, by method.

    ring (arXiv:2310.01889): the block of keys and values travels cp - 1 times forward, cp - 1 times
    backward with cp times its gradient. allgather (arXiv:2407.21783): one gather forward, one
    backward, one scatter of the gradient. ulysses (arXiv:2309.14509): all-to-alls of q, of k and v
    and of the output, the same backward; fewer key/value heads than ranks are copied first. The
    emitted code has nothing to compute again of attention alone: it keeps no scores.
    """
    cp = job.parallel.cp
    if cp == 1:
        return
    model, method = job.model, job.parallel.cp_method
    heads, inner = -(-model.heads // job.parallel.tp), 1
    if method.name.startswith("ulysses"):
        inner = cp if method.name == "ulysses" else method["inner"]
    if model.mla is None:
        query = out = heads * model.head_dim
        pair = 2 * max(inner, -(-model.kv_heads // job.parallel.tp)) * model.head_dim
    else:
        query = heads * (model.mla.nope_dim + model.mla.rope_dim)
        out = heads * model.mla.v_dim
        pair = query + out
    count = job.microbatches
    layers = load.layers * count
    core = job.repeats("core_attention") and not job.flat
    again = count * (load.layers if core else load.again)
    dtype, width, tokens = job.dtypes.compute, job.width, job.tokens

    def raw(what: str, collective: str, features: int, calls: int, ranks: int | None) -> Raw:
        hidden = what == "ring attention"
        formula = f"{width} B x {tokens} tokens x {features}"
        size = width * tokens * features
        return Raw("cp", what, collective, dtype, size, calls, hidden, formula, ranks)

    outer = cp // inner
    if inner > 1:
        for name, features in (("queries", query), ("keys and values", pair), ("output", out)):
            calls = 2 * layers + again
            yield raw(f"ulysses {name}", "all_to_all", features, calls, inner)
        pair //= inner
        tokens *= inner
    if method.name == "allgather":
        yield raw("keys and values", "all_gather", cp * pair, 2 * layers + again, None)
        yield raw("gradient of keys and values", "reduce_scatter", cp * pair, layers, None)
    elif method.name != "ulysses" and outer > 1:
        passes = layers * (2 * (outer - 1) + outer) + again * (outer - 1)
        for collective in ("send", "recv"):
            yield raw("ring attention", collective, pair, passes, outer)


# ── Expert parallelism ────────────────────────────────────────────────────────


def expert_parallel(job: Job, load: Load) -> Iterator[Raw]:
    """Every layer of experts: two all-to-alls forward, two backward (arXiv:2006.16668).

    A rank sends its own tokens·top_k·hidden; the busiest one `imbalance` times that. Ranks of etp
    gather what they received and scatter what they made. Our own code tells how many rows come
    before they do, and gathers and scatters by all-to-alls, since rows are not as many on each.
    """
    experts, mixed = job.model.experts, load.mixed
    if experts is None or not mixed:
        return
    if job.flat:
        yield from _emitted(job, load)
        return
    own = job.tokens // job.cut
    visits = int(own * experts.top_k * (experts.capacity or experts.imbalance))
    size = job.width * visits * job.model.hidden
    formula = f"{job.width} B x {own} tokens x {experts.top_k} experts x {job.model.hidden}"
    again = mixed if job.repeats("experts") else load.routed
    passes = (2 * mixed + again) * job.microbatches
    dtype, etp = job.dtypes.compute, job.parallel.etp
    if job.parallel.ep > 1:
        for what in ("dispatch", "combine"):
            yield Raw("ep", what, "all_to_all", dtype, size, passes, False, formula)
    if etp > 1:
        for collective in ("all_gather", "reduce_scatter"):
            words = f"{formula} x {etp}"
            yield Raw("etp", "tokens", collective, dtype, etp * size, passes, False, words)


def _emitted(job: Job, load: Load) -> Iterator[Raw]:
    """The messages of the emitted code, which `parlay verify` holds its ranks to."""
    experts = job.model.experts
    assert experts is not None
    again = load.mixed if job.repeats("experts") else load.routed
    share = experts.capacity or experts.imbalance
    for one in of_experts.messages(job.spec, load.mixed, again=again, share=share):
        dtype = one.dtype or job.dtypes.compute
        size, formula = BYTES[dtype] * one.elements, f"{BYTES[dtype]} B x {one.elements}"
        calls = one.calls * job.microbatches
        yield Raw(one.group, one.what, one.collective, dtype, size, calls, False, formula)
