"""Messages once a step, or once a microbatch over the data-parallel groups; and between stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.layout.stages import borders
from parlay.compiler.ledger import shared
from parlay.compiler.ledger.adapters import rank_of
from parlay.compiler.ledger.comm.context import Job
from parlay.compiler.ledger.comm.record import Raw
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.recipe import BYTES, GRADIENT_BUCKET
from parlay.compiler.ledger.units import Sent, Traffic


def pipeline(job: Job, chunks: Sequence[Stage]) -> Iterator[Raw]:
    """Between stages, b·s·h/(cp·tp) an activation forward and its gradient backward.

    A border inside a rank (the turn of a V) sends nothing; DualPipe sends half of the microbatches
    each way.
    """
    pp = job.parallel.pp
    if pp == 1:
        return
    schedule = job.parallel.schedule
    between = sum(borders(chunk, schedule=schedule, pp=pp) for chunk in chunks)
    count = job.microbatches
    size = job.width * (job.tokens * job.model.hidden // job.cut)
    cut = f" / {job.cut}" if job.cut > 1 else ""
    formula = f"{job.width} B x {job.tokens} tokens x {job.model.hidden}{cut}"
    for collective in ("send", "recv"):
        calls = between * count
        yield Raw("pp", "stage borders", collective, job.dtypes.compute, size, calls, True, formula)


# ── Data parallelism ──────────────────────────────────────────────────────────


def data_parallel(
    layout: Layout,
    held: Parameters,
    *,
    zero: int,
    microbatches: int,
    units: int,
    gradients: str,
    weights: str,
    flat: bool = False,
    traffic: Traffic | None = None,
    of_experts: Traffic | None = None,
) -> Iterator[Raw]:
    """Gradients and weights over the ZeRO groups (arXiv:1910.02054, section 7).

    0: one all-reduce of the gradients, in buckets. 1: reduce-scatter and all-gather. 2: a
    reduce-scatter each microbatch. 3: all-gathers of the weights forward and backward, each
    microbatch. Under HSDP the shards' gradients are all-reduced over `replicate` once a step.
    `units` is in how many pieces a rank's weights travel each microbatch: its layers and ends. With
    `flat` ZeRO-1 sends one buffer, filled up to a multiple of the ranks; `traffic` is what our own
    code sends of dense weights under ZeRO 2 and 3, `of_experts` what it sends of routed experts.
    """
    beside = _beside(layout, held, of_experts) if flat and zero >= 2 else 0
    for number, kind in ((held.dense, "dense"), (held.expert, "expert")):
        if not number:
            continue
        shard, replicate, whole = (
            ("shard", "replicate", "dp_cp")
            if kind == "dense"
            else ("expert_shard", "expert_replicate", "edp")
        )
        hsdp = zero >= 1 and replicate in layout.kinds and layout.size(replicate) > 1
        group = shard if hsdp else whole
        if group not in layout.kinds:
            continue
        if group == "dp_cp" and layout.size("cp") == 1:
            group = "dp"
        words = "" if kind == "dense" else " of experts"
        buckets = max(1, -(-number // GRADIENT_BUCKET))

        def raw(
            on: str,
            what: str,
            collective: str,
            dtype: str,
            elements: float,
            calls: int,
            times: int = 1,
            number: int = number,
        ) -> Raw:
            size = _each(round(elements * BYTES[dtype]), calls)
            formula = f"{BYTES[dtype]} B x {round(elements)}"
            if calls > 1:
                formula += f" / {calls} calls"
            return Raw(on, what, collective, dtype, size, calls * times, True, formula)

        ranks = layout.size(group)
        known = (traffic if kind == "dense" else of_experts) if zero >= 2 else None
        if ranks > 1:
            if zero == 0:
                yield raw(group, "gradients" + words, "all_reduce", gradients, number, buckets)
            else:
                pieces, sent = _reduced(number, ranks, zero, units, flat, known)
                each = microbatches if zero >= 2 else 1
                yield raw(
                    group, "gradients" + words, "reduce_scatter", gradients, sent, pieces, each
                )
                each = microbatches if zero == 3 else 1
                if zero == 3 and known is not None:
                    pieces, sent = known.gathered
                elif zero == 3:
                    each *= 2
                elif zero == 2 and known is None:
                    pieces = buckets
                yield raw(group, "weights" + words, "all_gather", weights, sent, pieces, each)
        if hsdp:
            own, pieces = number / ranks, max(1, round(buckets / ranks))
            if known is not None or (flat and zero == 1):
                own = _reduced(number, ranks, zero, units, flat, known).elements // ranks
                own += beside
                pieces = -(-int(own) // GRADIENT_BUCKET)
            if kind == "expert" and beside:
                continue
            yield raw(replicate, "gradients" + words, "all_reduce", gradients, own, pieces)


def frozen(job: Job, dense: Traffic, of_experts: Traffic | None) -> Iterator[Raw]:
    """The weights under adapters that a microbatch gathers (ZeRO-3)."""
    layout, dtype = job.layout, job.dtypes.compute
    hsdp = "replicate" in layout.kinds and layout.size("replicate") > 1
    group = "shard" if hsdp else "dp_cp" if layout.size("cp") > 1 else "dp"
    parts = [(group, "weights", dense)]
    if of_experts is not None:
        parts.append(("expert_shard" if hsdp else "edp", "weights of experts", of_experts))
    for on, what, sent in parts:
        calls, elements = sent.gathered
        if on not in layout.kinds or layout.size(on) == 1 or not calls:
            continue
        size = _each(round(elements * BYTES[dtype]), calls)
        formula = f"{BYTES[dtype]} B x {elements} / {calls} calls"
        yield Raw(on, what, "all_gather", dtype, size, calls * job.microbatches, True, formula)


def _beside(layout: Layout, held: Parameters, of_experts: Traffic | None) -> int:
    """What a rank owns of experts in the buffer of all that it owns, where copies of both are on
    the same ranks."""
    kinds = ("replicate", "expert_replicate")
    if not held.expert or not all(kind in layout.kinds for kind in kinds):
        return 0
    ours, theirs = (layout.size(kind) for kind in kinds)
    if ours == 1 or ours != theirs:
        return 0
    return held.expert if of_experts is None else of_experts.owned


def _reduced(
    number: int, ranks: int, zero: int, units: int, flat: bool, known: Traffic | None
) -> Sent:
    """The pieces that gradients are reduced in each time, and their elements."""
    if known is not None:
        return known.reduced
    if flat and zero == 1:
        return Sent(1, -(-number // ranks) * ranks)
    return Sent(units if zero >= 2 else max(1, -(-number // GRADIENT_BUCKET)), number)


def _each(whole: int, calls: int) -> float:
    """The mean message of `calls`: whole bytes where they come out even."""
    return whole // calls if whole % calls == 0 else whole / calls


def once_a_step(job: Job, chunks: Sequence[Stage]) -> Iterator[Raw]:
    """Gradients that ranks of a replica share, the loss's sums, the norm of the gradients."""
    parallel, dtypes, layout = job.parallel, job.dtypes, job.layout

    def summed(group: str, what: str, elements: int, ranks: int | None = None) -> Raw:
        size, formula = (
            BYTES[dtypes.gradients] * elements,
            f"{BYTES[dtypes.gradients]} B x {elements}",
        )
        return Raw(group, what, "all_reduce", dtypes.gradients, size, 1, False, formula, ranks)

    found = shared.shared_of(job.spec, chunks)
    if parallel.tp > 1 and found.whole and shared.partial(job.spec):
        yield summed("tp", "gradients of whole weights", found.whole)
    for group, elements in shared.sums(job.spec, chunks, found):
        # Neighbours in tp that hold one key/value head alike sum its gradient among themselves.
        ranks = parallel.tp // job.model.kv_heads if group == "kv" else None
        yield summed(group, SHARED[group], elements, ranks)
    further = job.model.mtp_layers and not job.model.tied_embeddings and parallel.pp > 1
    if (
        further
        and rank_of(job.spec) is None
        and any(chunk.embedding != chunk.head for chunk in chunks)
    ):
        # Layers for further tokens, on the last stage, read the embedding of the first.
        rows = job.vocab // parallel.tp
        yield summed("embedding", SHARED["embedding"], rows * job.model.hidden)
    group = "dp_cp" if parallel.cp > 1 else "dp"
    wide = dtypes.wide
    one = (BYTES[wide], f"{BYTES[wide]} B")
    if layout.size(group) > 1 and any(chunk.head for chunk in chunks):
        yield Raw(group, "labels that count", "all_reduce", "int64", 8, 1, False, "8 B")
        yield Raw(group, "loss", "all_reduce", wide, one[0], 1, False, one[1])
    if (parts := _parts(job)) is not None:
        yield Raw(parts, "gradient norm", "all_reduce", wide, one[0], 1, False, one[1])


def mirrored(job: Job, chunks: Sequence[Stage], held: Parameters) -> Iterator[Raw]:
    """DualPipe: what a rank owns of the gradients, and the halves of the loss, over the two ranks
    that hold the same stages."""
    parallel, dtypes, layout = job.parallel, job.dtypes, job.layout
    if parallel.pp == 1 or parallel.schedule.name != "dualpipe":
        return
    for number, shard, whole in (
        (held.dense, "shard", "dp_cp"),
        (held.expert, "expert_shard", "edp"),
    ):
        group = shard if shard in layout.kinds else whole
        ranks = layout.size(group) if parallel.zero and group in layout.kinds else 1
        own = -(-number // ranks)
        calls = -(-own // GRADIENT_BUCKET)
        if own:
            size = BYTES[dtypes.gradients] * own
            formula = f"{BYTES[dtypes.gradients]} B x {own}"
            formula += f" / {calls} calls" if calls > 1 else ""
            what = "gradients of both copies" + (" of experts" if whole == "edp" else "")
            each = _each(size, calls)
            yield Raw(
                "mirror", what, "all_reduce", dtypes.gradients, each, calls, False, formula, 2
            )
    if any(chunk.head for chunk in chunks):
        size = BYTES[dtypes.wide]
        yield Raw("mirror", "loss", "all_reduce", dtypes.wide, size, 1, False, f"{size} B", 2)


SHARED = {
    "tp": "gradients of norms inside heads",
    "kv": "gradients of copied heads",
    "embedding": "tied gradients",
}
"""What is summed over a group of ranks of one replica."""


def _parts(job: Job) -> str | None:
    """The smallest group that holds every gradient once: a replica, or all where dp is sharded."""
    parallel, layout = job.parallel, job.layout
    sharded = parallel.zero > 0 and layout.size("dp_cp") > 1
    trains = rank_of(job.spec) is None
    if sharded or (trains and job.model.experts is not None and parallel.ep * parallel.etp > 1):
        return "world" if layout.world > 1 else None
    axes = [axis for axis in ("tp", "pp") if getattr(parallel, axis) > 1]
    return "_".join(axes) or None
