"""All messages of one training step, merged over the stages that send the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from parlay.compiler.layout import Layout, Reach, Stage
from parlay.compiler.ledger.adapters import rank_of
from parlay.compiler.ledger.comm.context import Job, Load, together
from parlay.compiler.ledger.comm.layers import (
    context_parallel,
    ends,
    expert_parallel,
    tensor_parallel,
)
from parlay.compiler.ledger.comm.record import CommLine, Raw
from parlay.compiler.ledger.comm.step import data_parallel, frozen, mirrored, once_a_step, pipeline
from parlay.compiler.ledger.comm.wire import wire
from parlay.compiler.ledger.communication_experts import copies
from parlay.compiler.ledger.parameters import Parameters, stage_parameters
from parlay.compiler.ledger.recipe import DTYPES, passes
from parlay.compiler.ledger.shared import trained_parameters
from parlay.compiler.ledger.state import bytes_per_parameter
from parlay.compiler.ledger.units import Traffic, expert_traffic, traffic
from parlay.compiler.spec.blocks import Spec

AS_FAR = {"kv": "tp", "mirror": "embedding"}
"""Groups that are priced as others: ranks that hold one key/value head alike are neighbours in tp,
and of those that hold the same stages both ends of a pipeline are the farthest apart."""
WIDE = {2: "bfloat16", 4: "float32", 8: "float64"}


def comm_lines(
    spec: Spec, layout: Layout, held: Sequence[Parameters] | None = None
) -> tuple[CommLine, ...]:
    """Every message of one step, for all axes and options; groups of one rank send nothing.

    `held` are the parameters on a rank of each stage, where they are known already.

    A model given by `params` has its data-parallel traffic alone. Messages that several pipeline
    stages send alike are one line.
    """
    found: dict[Raw, list[int]] = defaultdict(list)
    if not layout.stages or spec.train is None:
        for raw in _of_states(spec, layout):
            found[raw].append(0)
    else:
        job = Job(spec, layout)
        for stages in _alike(job, layout):
            chunks = layout.rows[stages[0]]
            passed = together([job.load(chunk) for chunk in chunks])
            of_stage = _of_stage(job, chunks, passed, held[stages[0]] if held else None)
            for raw in of_stage:
                if raw.calls and raw.message_bytes:
                    found[raw] += stages
    reaches: dict[str, Reach] = {}
    lines = []
    for raw, stages in found.items():
        if raw.group not in reaches:
            reaches[raw.group] = layout.reach(AS_FAR.get(raw.group, raw.group))
        lines.append(_placed(spec, raw, reaches[raw.group], tuple(sorted(stages))))
    return tuple(lines)


def _alike(job: Job, layout: Layout) -> Iterable[Sequence[int]]:
    """Pipeline ranks that send the same: those that hold the same, unless the layers that are
    computed again hang on where a chunk begins."""
    if job.model.experts is None or job.train.recompute.name != "full":
        return layout.alike
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for ranks in layout.alike:
        for rank in ranks:
            found[ranks, *map(job.load, layout.rows[rank])].append(rank)
    return found.values()


def _of_stage(
    job: Job, chunks: Sequence[Stage], load: Load, held: Parameters | None
) -> Iterator[Raw]:
    parallel = job.parallel
    yield from tensor_parallel(job, load)
    yield from ends(job, load)
    yield from context_parallel(job, load)
    yield from expert_parallel(job, load)
    yield from pipeline(job, chunks)
    units = load.layers + load.embedding + load.head
    zero = parallel.zero
    if rank_of(job.spec) is not None:
        held = trained_parameters(job.spec, chunks)
        if job.flat:  # adapters are one buffer; what they adapt is gathered where it is used
            if zero == 3:
                yield from frozen(job, traffic(job.spec, chunks), _of_experts(job, chunks))
            zero = min(zero, 1)
    owned = _held(job, chunks) if held is None else held
    yield from data_parallel(
        job.layout,
        owned,
        zero=zero,
        microbatches=job.microbatches,
        units=units,
        gradients=job.dtypes.gradients,
        weights=job.dtypes.compute,
        flat=job.flat,
        traffic=traffic(job.spec, chunks) if job.flat and zero >= 2 else None,
        of_experts=_of_experts(job, chunks) if zero >= 2 else None,
    )
    yield from once_a_step(job, chunks)
    yield from mirrored(job, chunks, owned)


def _of_experts(job: Job, chunks: Sequence[Stage]) -> Traffic | None:
    """What our own code sends of routed experts under ZeRO 2 and 3."""
    if not job.flat or job.parallel.zero < 2 or "edp" not in job.layout.kinds:
        return None
    return expert_traffic(job.spec, chunks, copies(job.layout, zero=job.parallel.zero))


def _held(job: Job, chunks: Sequence[Stage]) -> Parameters:
    parallel = job.parallel
    held = Parameters()
    for chunk in chunks:
        held += stage_parameters(
            job.model,
            range(chunk.first, chunk.last + 1),
            embedding=chunk.embedding,
            head=chunk.head,
            copied=chunk.copies_embedding,
            tp=parallel.tp,
            etp=parallel.etp,
            ep=parallel.ep,
            vocab_rows=job.vocab,
        )
    return held


def _of_states(spec: Spec, layout: Layout) -> Iterator[Raw]:
    model, parallel = spec.model, spec.parallel
    if model is None or model.params is None:
        return
    each = bytes_per_parameter(spec.train)
    weights = DTYPES.get(spec.train.precision, "bfloat16") if spec.train else "bfloat16"
    held = Parameters(round(model.params / (parallel.tp * parallel.pp)))
    raws = data_parallel(
        layout,
        held,
        zero=parallel.zero,
        microbatches=1,
        units=1,
        gradients=WIDE.get(int(each.gradients), "float32"),
        weights=weights,
    )
    frozen = spec.train is not None and spec.train.lora is not None
    for raw in raws:
        if frozen and (parallel.zero < 3 or raw.collective != "all_gather"):
            continue  # of adapters without shapes nothing is known
        # One message: without a shape there are no buckets to speak of.
        pieces = raw.calls if parallel.zero < 3 or raw.what == "gradients" else raw.calls // 2
        calls = raw.calls // pieces
        size = raw.message_bytes * pieces
        yield raw._replace(message_bytes=size, calls=calls)


def _placed(spec: Spec, raw: Raw, reach: Reach, stages: tuple[int, ...]) -> CommLine:
    assert spec.cluster is not None
    group, what, collective, dtype, message, calls, hidden, formula, some = raw
    ranks = some or reach.size
    sent, steps, algorithm = wire(collective, message, ranks, reach=reach, cluster=spec.cluster)
    hidden = hidden and spec.parallel.overlap
    # In the order of the fields: by name each costs more than all arithmetic here.
    return CommLine(
        group,
        what,
        collective,
        dtype,
        message,
        sent,
        calls,
        reach.link,
        ranks,
        reach.nodes,
        reach.groups_per_nic,
        algorithm,
        steps,
        hidden,
        stages,
        formula,
    )


def relative_to_plain(spec: Spec, layout: Layout, lines: Sequence[CommLine]) -> float | None:
    """Data-parallel traffic over that of plain data parallelism at the gradients' dtype.

    Plain: 2M(N-1)/N bytes a rank for M bytes of gradients; None where no data-parallel group has
    two ranks. At equal dtypes and one microbatch ZeRO 1 and 2 give 1, ZeRO 3 gives 1.5.
    """
    sent, plain, others = 0.0, 0.0, ("tp", "embedding", "mirror")
    for line in lines:
        if line.what.startswith(("gradients", "weights")) and line.group not in others:
            if 0 not in line.stages:
                continue
            sent += line.wire_bytes_per_step
            if line.what.startswith("gradients") and "replicate" not in line.group:
                per = line.calls_per_step / _times(spec, line)
                plain += 2 * line.bytes_per_call * per * (line.ranks - 1) / line.ranks
    return sent / plain if plain else None


def _times(spec: Spec, line: CommLine) -> int:
    """How often the gradients travel: each microbatch from ZeRO 2 on."""
    train, parallel = spec.train, spec.parallel
    if train is None or parallel.zero < 2 or spec.model is None or spec.model.layers is None:
        return 1
    return max(1, passes(spec))


__all__ = ["comm_lines", "relative_to_plain"]
