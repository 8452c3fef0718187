"""A ledger as plain JSON values, for `parlay ledger --json`; fields are only ever added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.comm import CommLine, relative_to_plain
from parlay.compiler.ledger.document import Ledger
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.memory import RankClass
from parlay.compiler.ledger.memory.chunk import LayerKept
from parlay.compiler.ledger.notes import context_note, gather_note, link_notes, recompute_note
from parlay.compiler.ledger.shared import adapters_of
from parlay.compiler.ledger.state import WIDTHS
from parlay.compiler.ledger.time import CallTime


def to_json(ledger: Ledger, *, formulas: bool = False) -> dict[str, Any]:
    """One phase of the document; `formulas` adds the arithmetic beside each figure."""
    spec = ledger.spec
    document: dict[str, Any] = {
        "name": ledger.name,
        "world": ledger.layout.world,
        "parameters": _parameters(ledger),
        "memory": _memory(ledger, formulas=formulas),
        "communication": [_line(*each) for each in timed_lines(ledger)],
        "communication_totals": _totals(ledger),
        "pipeline": asdict(ledger.pipeline) if ledger.pipeline else None,
        "time": _time(ledger, formulas=formulas),
        "run": asdict(ledger.run),
        "goodput": _goodput(ledger),
        "inference": _inference(ledger),
        "links": link_notes(spec),
        "asserts": [],
        "scaling": [],
    }
    if spec.train is not None:
        document["batch"] = _batch(ledger)
        if ledger.layout.stages:
            document["context"] = context_note(spec)
            document["recompute"] = recompute_note(spec)
    return document


def _parameters(ledger: Ledger) -> dict[str, Any]:
    spec, model = ledger.spec, ledger.spec.model
    assert model is not None
    found: dict[str, Any] = {
        "total": parameters.total(model),
        "active": parameters.active(model),
        "by_kind": {},
    }
    if model.layers is None:
        return found
    width = WIDTHS.get(spec.train.precision, 2) if spec.train else 2
    rows = padded_vocab(spec)
    found["by_kind"] = parameters.by_kind(model)
    if (trained := adapters_of(spec)) is not None:
        found["trained"] = trained
    found["padding"] = parameters.padding(model, rows)
    found["tensors"] = [
        {
            "name": row.name,
            "shape": list(row.shape),
            "layers": times,
            "count": row.count,
            "bytes": width * row.numel // row.count,
        }
        for row, times in parameters.weights(model).groups()
    ]
    return found


# ── Memory ────────────────────────────────────────────────────────────────────


def _memory(ledger: Ledger, *, formulas: bool) -> dict[str, Any]:
    memory, state = ledger.memory, asdict(ledger.state)
    return {
        "budget_bytes": memory.budget_bytes,
        "peak_bytes": memory.worst.peak_bytes,
        "rank_classes": [
            _class(each, memory.budget_bytes, formulas=formulas) for each in memory.classes
        ],
        "host_bytes_per_node": memory.host_bytes_per_node,
        "disk_bytes_per_node": memory.disk_bytes_per_node,
        "state": state,
        "layers": [_layer(ledger, each, formulas=formulas) for each in memory.layers],
        "layers_bytes": _all_layers(ledger),
        "layers_gpus_needed": -(-_all_layers(ledger) // memory.budget_bytes),
    }


def _class(each: RankClass, budget: int, *, formulas: bool) -> dict[str, Any]:
    peak = each.peak
    found: dict[str, Any] = {
        "stage": each.stage,
        "ranks": each.ranks,
        "peak_bytes": peak.value_bytes,
        "over_bytes": max(0, peak.value_bytes - budget),
        "moment": peak.name,
        "categories": peak.categories,
        "experts": each.experts,
        "in_flight": list(each.in_flight),
        "moments": {moment.name: moment.value_bytes for moment in each.moments},
    }
    if formulas:
        found["lines"] = [line._asdict() for line in peak.lines]
        found["formula"] = " + ".join(str(line.value_bytes) for line in peak.lines)
    return found


def _layer(ledger: Ledger, kept: LayerKept, *, formulas: bool) -> dict[str, Any]:
    """One layer and microbatch on one rank; past `crossover_tokens` the square part is larger."""
    assert ledger.spec.train is not None
    seq = ledger.spec.train.seq
    recompute = ledger.spec.train.recompute
    bytes_ = kept.input_bytes if recompute.name == "full" else kept.kept_bytes
    square = sum(row.value_bytes for row in kept.saved if row.square)
    linear = kept.whole_bytes - square
    found: dict[str, Any] = {
        "experts": kept.experts,
        "bytes": bytes_,
        "without_recompute_bytes": kept.whole_bytes,
        "linear_bytes": linear,
        "square_bytes": square,
        "crossover_tokens": seq * linear / square if square else None,
    }
    if formulas:
        found["lines"] = [row._asdict() for row in kept.saved]
    return found


def _all_layers(ledger: Ledger) -> int:
    """Every layer of the model for one microbatch, as one rank of tp and cp would keep them."""
    model = ledger.spec.model
    assert model is not None
    if model.layers is None or not ledger.memory.layers:
        return 0
    mixed = model.experts.layers_before(model.layers) if model.experts else 0
    counts = {True: mixed, False: model.layers - mixed}
    return sum(counts[each.experts] * each.kept_bytes for each in ledger.memory.layers)


# ── Communication and time ────────────────────────────────────────────────────


def timed_lines(ledger: Ledger) -> Iterator[tuple[CommLine, CallTime | None]]:
    """Every message with its time, None where no step is priced."""
    calls = ledger.calls or (None,) * len(ledger.communication)
    yield from zip(ledger.communication, calls, strict=True)


def _line(line: CommLine, time: CallTime | None) -> dict[str, Any]:
    return {
        "group": line.group,
        "collective": line.collective,
        "dtype": line.dtype,
        "bytes_per_call": line.bytes_per_call,
        "wire_bytes_per_call": line.wire_bytes_per_call,
        "calls_per_step": line.calls_per_step,
        "link": line.link,
        "seconds": time and time.seconds,
        "exposed_seconds": time and time.exposed_seconds,
        "source": time and time.source,
        "formula": line.formula,
        "what": line.what,
        "ranks": line.ranks,
        "nodes": line.nodes,
        "groups_per_nic": line.groups_per_nic,
        "algorithm": line.algorithm,
        "latency_steps": line.latency_steps,
        "hideable": line.hideable,
        "stages": list(line.stages),
    }


def _totals(ledger: Ledger) -> dict[str, Any]:
    """Bytes that one rank of the first stage sends in a step, by group and by link."""
    by_group: dict[str, float] = {}
    by_link: dict[str, float] = {}
    for line in ledger.communication:
        if 0 in line.stages and line.collective != "recv":
            by_group[line.group] = by_group.get(line.group, 0.0) + line.wire_bytes_per_step
            by_link[line.link] = by_link.get(line.link, 0.0) + line.wire_bytes_per_step
    found: dict[str, Any] = {
        "wire_bytes_by_group": by_group,
        "wire_bytes_by_link": by_link,
        "data_parallel_relative_to_plain": relative_to_plain(
            ledger.spec, ledger.layout, ledger.communication
        ),
    }
    if ledger.spec.parallel.zero == 3:
        found.update(gather_note(ledger.spec, ledger.layout))
    return found


TIME = (
    "step_seconds",
    "compute_seconds",
    "exposed_communication_seconds",
    "bubble",
    "bubble_over_ideal",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "mfu",
    "hfu",
    "mfu_causal",
    "peak_flops",
    "flops_per_token",
    "flops_convention",
)


def _time(ledger: Ledger, *, formulas: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(ledger.time, name, None) for name in TIME}
    if ledger.time is not None:
        found["band"] = ledger.time.band
        found["shares"] = {share.name: share.seconds for share in ledger.time.shares}
        found["sources"] = {share.name: share.source for share in ledger.time.shares}
        if formulas:
            found["formula"] = dict(ledger.time.formulas)
    return found


# ── The run ───────────────────────────────────────────────────────────────────


def _batch(ledger: Ledger) -> dict[str, int]:
    train, pipeline = ledger.spec.train, ledger.pipeline
    assert train is not None and pipeline is not None
    sequences = train.micro_batch * pipeline.microbatches * ledger.layout.size("dp")
    return {
        "micro_batch": train.micro_batch,
        "microbatches": pipeline.microbatches,
        "sequences_per_step": sequences,
        "tokens_per_step": sequences * train.seq,
    }


def _goodput(ledger: Ledger) -> dict[str, Any]:
    found = ledger.goodput
    if found is None:
        return {}
    mfu = ledger.time.mfu if ledger.time else None
    share = found.useful_share
    return {
        **asdict(found),
        "mtbf_hours": found.mtbf_s / 3600,
        "failures_per_day": found.failures_per_day,
        "useful_mfu": mfu * share if mfu is not None and share is not None else None,
    }


def _inference(ledger: Ledger) -> dict[str, Any]:
    found = ledger.inference
    return {**asdict(found), "full_context_bytes": found.full_context_bytes}
