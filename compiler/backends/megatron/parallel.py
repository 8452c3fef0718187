"""How the work is cut, as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from parlay.compiler.backends.megatron.argument import Piece, chosen, field, given, refused
from parlay.compiler.layout import Layout
from parlay.compiler.layout.orders import dense_grid, expert_grid
from parlay.compiler.spec.blocks import Parallel, Spec
from parlay.compiler.spec.resolve import Phase
from parlay.runtime.axes import Grid

ORDERS: Final = (
    (("tp", "cp", "ep", "dp", "pp"), None),
    (("tp", "cp", "ep", "pp", "dp"), "--use-tp-pp-dp-mapping"),
)
"""The two orders of ranks that Megatron-LM has, fastest first, and the option of each."""

CP_METHODS: Final = {
    "ring": "p2p",
    "allgather": "allgather",
    "ulysses": "a2a",
    "ulysses_ring": "a2a+p2p",
}


def parallel(phase: Phase, spec: Spec, layout: Layout) -> Iterator[Piece]:
    """Degrees, order, and what is sharded over the replicas."""
    parallel = spec.parallel
    yield given("--tensor-model-parallel-size", parallel.tp, path="parallel.tp")
    if parallel.sequence_parallel and parallel.tp > 1:
        yield given("--sequence-parallel", path="parallel.sequence_parallel")
    yield given("--pipeline-model-parallel-size", parallel.pp, path="parallel.pp")
    yield given("--context-parallel-size", parallel.cp, path="parallel.cp")
    if parallel.cp > 1:
        method = parallel.cp_method
        yield given("--cp-comm-type", CP_METHODS[method.name], path="parallel.cp_method")
        if method.name == "ulysses_ring":
            sizes = (method["inner"], method["outer"])
            option = "--hierarchical-context-parallel-sizes"
            yield given(option, *sizes, path="parallel.cp_method")
    yield from _order(phase, spec, layout)
    yield from _sharding(phase, spec, layout)
    yield from _offload(phase, parallel)
    model = spec.model
    assert model is not None
    if model.experts is not None and parallel.tp > 1 and not parallel.sequence_parallel:
        words = "experts with tp above 1 need it"
        yield refused(
            phase, "parallel.sequence_parallel", "experts without it", words=words, help=()
        )


# ── Order ─────────────────────────────────────────────────────────────────────


def _order(phase: Phase, spec: Spec, layout: Layout) -> Iterator[Piece]:
    parallel, experts = spec.parallel, _has_experts(spec)
    for order, option in ORDERS:
        if not _same_ranks(parallel, layout, order, needs_experts=experts):
            continue
        if option is not None:
            yield given(option, path="parallel.order")
        yield given("--expert-model-parallel-size", parallel.ep, path="parallel.ep")
        if experts:
            # Left out, it would be tp.
            yield given("--expert-tensor-parallel-size", parallel.etp, path="parallel.etp")
        else:
            # Where dp is outside of pp, there must be dp replicas of experts, even of none.
            etp = parallel.tp if option is None else parallel.tp * parallel.cp
            yield chosen("--expert-tensor-parallel-size", etp, path="parallel.etp")
        return
    yield refused(
        phase,
        "parallel.order",
        field(phase, "parallel.order"),
        words="its ranks stand in tp, cp, dp, pp or in tp, cp, pp, dp",
        help=["`order = [tp, cp, dp, pp]` or `order = [tp, cp, pp, dp]`"],
    )


def _has_experts(spec: Spec) -> bool:
    model = spec.model
    return model is not None and model.experts is not None


def _same_ranks(
    parallel: Parallel, layout: Layout, order: tuple[str, ...], *, needs_experts: bool
) -> bool:
    """Whether every axis above 1 has the stride that Megatron-LM's order gives it."""
    theirs = replace(parallel, order=order)
    if not _equal(layout.dense, dense_grid(theirs)):
        return False
    if not needs_experts:
        return True
    expert = expert_grid(theirs, world=layout.world)
    if expert is None or layout.expert is None:
        return False
    # An order without pp last needs as many replicas of the experts as of the rest.
    last = order[-1] == "pp" or parallel.pp == 1 or expert.size("edp") == parallel.dp
    return last and _equal(layout.expert, expert)


def _equal(ours: Grid, theirs: Grid) -> bool:
    return all(
        ours.stride(axis) == theirs.stride(axis) for axis in ours.axes if ours.size(axis) > 1
    )


# ── ZeRO and offload ──────────────────────────────────────────────────────────


def _sharding(phase: Phase, spec: Spec, layout: Layout) -> Iterator[Piece]:
    parallel = spec.parallel
    zero, replicas = parallel.zero, parallel.dp * parallel.cp // parallel.shard
    if zero >= 1:
        yield given("--use-distributed-optimizer", path="parallel.zero")
    if zero >= 2:
        strategy = "optim_grads" if zero == 2 else "optim_grads_params"
        yield given("--use-megatron-fsdp", path="parallel.zero")
        yield given("--data-parallel-sharding-strategy", strategy, path="parallel.zero")
    if parallel.overlap:
        yield given("--overlap-grad-reduce", path="parallel.overlap")
        if zero >= 1:
            yield given("--overlap-param-gather", path="parallel.overlap")
    if replicas == 1 or zero == 0:
        return
    if zero >= 2:
        yield refused(
            phase,
            "parallel.shard",
            f"ZeRO-{zero} over {parallel.shard} of {parallel.dp * parallel.cp} ranks",
            words="cut over all of dp·cp, or at ZeRO-1",
        )
        return
    kinds = layout.kinds
    if _has_experts(spec) and kinds["edp"].size != kinds["expert_shard"].size * replicas:
        yield refused(
            phase,
            "parallel.shard",
            f"shard = {parallel.shard} with these experts",
            words=f"{kinds['edp'].size} replicas of the experts are not cut in {replicas} parts",
        )
        return
    yield given("--num-distributed-optimizer-instances", replicas, path="parallel.shard")


def _offload(phase: Phase, parallel: Parallel) -> Iterator[Piece]:
    offload = parallel.offload
    if offload.name == "none":
        return
    if offload.name == "cpu" and offload.flags == ("optimizer",) and parallel.zero == 1:
        yield given("--optimizer-cpu-offload", path="parallel.offload")
        yield chosen("--use-precision-aware-optimizer", path="parallel.offload")
        return
    yield refused(
        phase,
        "parallel.offload",
        field(phase, "parallel.offload"),
        words=f"with zero = {parallel.zero}",
        help=["it expresses `cpu(optimizer)` with `zero = 1`"],
    )
