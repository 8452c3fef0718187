"""The step: pipeline, traffic, optimizer; what a spec costs in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2
from typing import Any

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.parameters import Parameters, stage_parameters
from parlay.compiler.ledger.recipe import microbatches as microbatches_of
from parlay.compiler.ledger.shared import trained_parameters
from parlay.compiler.ledger.time import (
    bubble,
    collectives,
    efficiency,
    measured,
    shapes,
    stages,
    traffic,
)
from parlay.compiler.ledger.time.efficiency import Efficiency
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.ledger.time.parts import add, total
from parlay.compiler.ledger.time.traffic import of_frozen
from parlay.compiler.spec.blocks import Spec

UPDATE_BYTES = 30.0
"""Bytes that Adam moves a parameter: fp32 gradient, master and two moments read (16), master and
moments written (12), the bf16 weight written (2)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A priced step: nominal seconds on the critical path by component, and what they came from.

    `tied` are the seconds of `dp` in which first and last stage sum what they hold twice.
    """

    parts: Mapping[str, float]
    waits: float
    ideal: float
    microbatches: int
    busiest: int
    pipeline: stages.Pipeline
    transfers: tuple[traffic.Transfer, ...]
    tied: float
    machine: Machine
    efficiency: Efficiency

    @property
    def seconds(self) -> float:
        """Of the step."""
        return total(self.parts, self.efficiency.factors)


def price(
    spec: Spec,
    layout: Layout,
    table: Mapping[str, Any] | None = None,
    ranks: Sequence[Parameters] | None = None,
) -> Step:
    """Prices a spec whose layout passed its checks and whose model has a shape.

    `ranks` are the parameters on a rank of each stage, where they are known already.
    """
    model, train, parallel, cluster = spec.model, spec.train, spec.parallel, spec.cluster
    assert model is not None and train is not None and cluster is not None
    rates = measured.over(efficiency.of(spec, table), spec, table)
    machine = Machine.of(spec, units=rates.units, peak=rates.peak, factors=rates.factors)
    m = microbatches_of(spec)
    line = stages.pipeline(spec, layout, machine, rates)
    priced = {counts: sum(line.seconds(counts)) for counts in set(line.counts)}
    times = [priced[counts] for counts in line.counts]
    hop = _hop(spec, layout, machine)
    busiest = max(range(parallel.pp), key=times.__getitem__)
    sent = hop * rates.factors["pp"]
    every = [t + sent for t in times]
    split = line.split(line.counts[busiest])
    ideal, waits = bubble.step(parallel.schedule, every, m, split)
    share = bubble.waiting_share(parallel.schedule, parallel.pp, split)
    parts: dict[str, float] = {}
    add(parts, line.parts(line.counts[busiest]), m - share)
    whole = tuple(sum(column) for column in zip(*line.counts, strict=True))
    add(parts, line.parts(whole), share)
    if hop:
        add(parts, {"pp": hop}, m + share * (parallel.pp - 1))
    forward, backward = line.seconds(line.counts[busiest])
    held = ranks[busiest] if ranks else held_by_rank(spec, layout, busiest)
    trained, send = held, traffic.transfers
    if train.lora is not None:
        trained, send = trained_parameters(spec, layout.rows[busiest]), partial(of_frozen, held)
    moved = tuple(
        send(
            *(parallel, train, layout, machine, trained, m),
            bucket=rates.bucket,
            broadcast=rates.broadcast,
        )
    )
    hidden = rates.overlap_dp if parallel.overlap else 0.0
    waited = traffic.exposed(
        list(moved), share=hidden, forward=forward, backward=backward, microbatches=m
    )
    tied = _tied(spec, layout, machine)
    add(parts, {"dp": waited + tied, "optimizer": _update(spec, layout, machine, trained)})
    steady = total(parts, rates.factors)
    add(parts, {"straggle": 0.01 * steady * log2(max(1.0, cluster.gpus / 8))})
    return Step(parts, waits, ideal - waits, m, busiest, line, moved, tied, machine, rates)


def held_by_rank(spec: Spec, layout: Layout, rank: int) -> Parameters:
    """The parameters of a rank of one stage."""
    assert spec.model is not None
    parallel = spec.parallel
    experts = spec.model.experts
    held = Parameters()
    known: dict[tuple[int, int, bool, bool], Parameters] = {}
    for chunk in layout.stages:
        if chunk.stage != rank:
            continue
        mixed = 0
        if experts is not None:
            mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
        key = (chunk.layers, mixed, chunk.embedding, chunk.head)
        if key not in known:
            known[key] = stage_parameters(
                spec.model,
                range(chunk.first, chunk.last + 1),
                embedding=chunk.embedding,
                head=chunk.head,
                copied=chunk.copies_embedding,
                tp=parallel.tp,
                etp=parallel.etp,
                ep=parallel.ep,
                vocab_rows=padded_vocab(spec),
            )
        held += known[key]
    return held


def _hop(spec: Spec, layout: Layout, machine: Machine) -> float:
    """Seconds that one microbatch's messages take on one rank: an activation and a gradient for
    each chunk."""
    train, parallel, model = spec.train, spec.parallel, spec.model
    assert train is not None and model is not None
    if parallel.pp == 1:
        return 0.0
    cut = parallel.cp * (parallel.tp if parallel.sequence_parallel else 1)
    message = shapes.element(train) * train.micro_batch * train.seq * model.hidden / cut
    each = collectives.seconds("send", machine.wire(layout, "pp"), message)
    return 2.0 * each * len(layout.stages) / parallel.pp


def _tied(spec: Spec, layout: Layout, machine: Machine) -> float:
    """Seconds in which first and last stage sum the gradient of an embedding that both hold.

    It comes after the last backward, when nothing is left to hide it. From ZeRO-2 on each rank
    sums its shard. Layers for further tokens, on the last stage, read the embedding, too.
    """
    train, parallel, model = spec.train, spec.parallel, spec.model
    assert train is not None and model is not None
    if not (model.tied_embeddings or model.mtp_layers) or train.lora is not None:
        return 0.0
    first = {stage.stage for stage in layout.stages if stage.embedding}
    if first == {stage.stage for stage in layout.stages if stage.head}:
        return 0.0
    shards = layout.size("shard") if parallel.zero >= 2 else 1
    elements = padded_vocab(spec) * model.hidden / parallel.tp / shards
    message = traffic.WIDTHS[train.gradients] * elements
    return collectives.seconds("all_reduce", machine.wire(layout, "embedding"), message)


def _update(spec: Spec, layout: Layout, machine: Machine, held: Parameters) -> float:
    """Seconds of the optimizer's traffic, in GPU memory or over the host."""
    train, parallel = spec.train, spec.parallel
    assert train is not None
    shard = layout.size("shard") if parallel.zero else 1
    inner = "expert_shard" if "expert_shard" in layout.kinds else "edp"
    expert = layout.size(inner) if parallel.zero and inner in layout.kinds else 1
    moved = UPDATE_BYTES * (held.dense / shard + held.expert / expert)
    offloaded = parallel.offload is not None and parallel.offload.name != "none"
    return moved / (machine.host_rate() if offloaded else machine.memory_rate)
