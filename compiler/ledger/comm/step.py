"""Messages once a step, or once a microbatch over the data-parallel groups; and between stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.comm.context import Job
from parlay.compiler.ledger.comm.record import Raw
from parlay.compiler.ledger.communication import BYTES, GRADIENT_BUCKET
from parlay.compiler.ledger.parameters import Parameters


def pipeline(job: Job, chunks: Sequence[Stage]) -> Iterator[Raw]:
    """Between stages, b·s·h/(cp·tp) an activation forward and its gradient backward.

    A border inside a rank (the turn of a V) sends nothing; DualPipe sends half of the microbatches
    each way.
    """
    pp = job.parallel.pp
    if pp == 1:
        return
    schedule = job.parallel.schedule.name
    borders = 0
    for chunk in chunks:
        before, after = not chunk.embedding, not chunk.head
        if schedule in ("zbv", "dualpipe_v") and chunk.stage == pp - 1:
            before, after = before and chunk.chunk == 0, after and chunk.chunk == 1
        borders += before + after
    count = job.microbatches // (2 if schedule == "dualpipe" else 1)
    size = job.width * (job.tokens * job.model.hidden // job.cut)
    cut = f" / {job.cut}" if job.cut > 1 else ""
    formula = f"{job.width} B x {job.tokens} tokens x {job.model.hidden}{cut}"
    for collective in ("send", "recv"):
        calls = borders * count
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
) -> Iterator[Raw]:
    """Gradients and weights over the ZeRO groups (arXiv:1910.02054, section 7).

    0: one all-reduce of the gradients, in buckets. 1: reduce-scatter and all-gather. 2: a
    reduce-scatter each microbatch. 3: all-gathers of the weights forward and backward, each
    microbatch. Under HSDP the shards' gradients are all-reduced over `replicate` once a step.
    `units` is in how many pieces a rank's weights travel each microbatch: its layers and ends.
    """
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
        if ranks > 1:
            if zero == 0:
                yield raw(group, "gradients" + words, "all_reduce", gradients, number, buckets)
            else:
                each = microbatches if zero >= 2 else 1
                pieces = units if zero >= 2 else buckets
                yield raw(
                    group, "gradients" + words, "reduce_scatter", gradients, number, pieces, each
                )
                times = 2 * microbatches if zero == 3 else 1
                pieces = units if zero == 3 else buckets
                yield raw(group, "weights" + words, "all_gather", weights, number, pieces, times)
        if hsdp:
            own = number / ranks
            pieces = max(1, round(buckets / ranks))
            yield raw(replicate, "gradients" + words, "all_reduce", gradients, own, pieces)


def _each(whole: int, calls: int) -> float:
    """The mean message of `calls`: whole bytes where they come out even."""
    return whole // calls if whole % calls == 0 else whole / calls


def once_a_step(job: Job, chunks: Sequence[Stage]) -> Iterator[Raw]:
    """Norms under sequence parallelism, tied embeddings, the loss's sums, the gradient norm."""
    parallel, dtypes, layout = job.parallel, job.dtypes, job.layout
    gradients = dtypes.gradients
    if parallel.tp > 1 and parallel.sequence_parallel:
        whole = sum(_whole(job, chunk) for chunk in chunks)
        size = BYTES[gradients] * whole
        formula = f"{BYTES[gradients]} B x {whole}"
        yield Raw(
            "tp", "gradients of whole weights", "all_reduce", gradients, size, 1, False, formula
        )
    tied = job.model.tied_embeddings or job.model.mtp_layers
    if tied and parallel.pp > 1 and any(chunk.embedding != chunk.head for chunk in chunks):
        rows = job.vocab // parallel.tp
        size = BYTES[gradients] * rows * job.model.hidden
        formula = f"{BYTES[gradients]} B x {rows} x {job.model.hidden}"
        yield Raw("embedding", "tied gradients", "all_reduce", gradients, size, 1, False, formula)
    group = "dp_cp" if parallel.cp > 1 else "dp"
    if layout.size(group) > 1 and any(chunk.head for chunk in chunks):
        yield Raw(group, "labels that count", "all_reduce", "int64", 8, 1, False, "8 B")
        yield Raw(group, "loss", "all_reduce", dtypes.wide, 4, 1, False, "4 B")
    if layout.world > 1 and job.train.clip:
        yield Raw("world", "gradient norm", "all_reduce", dtypes.wide, 4, 1, False, "4 B")


def _whole(job: Job, chunk: Stage) -> int:
    """Elements of a chunk's weights that every rank of tp holds whole."""
    table, mixed = job.table, job.mixed(chunk)
    total = 0
    for kind in table.kinds:
        rows = sum(row.numel for row in kind.rows if row.cut is None and not row.expert)
        total += rows * (mixed if kind.experts else chunk.layers - mixed)
    ends = (*(table.first if chunk.embedding else ()), *(table.last if chunk.head else ()))
    return total + sum(row.numel for row in ends if row.cut is None)
