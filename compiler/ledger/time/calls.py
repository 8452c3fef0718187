"""What each line of the communication ledger takes, and where its figures come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.comm.record import CommLine
from parlay.compiler.ledger.time import collectives
from parlay.compiler.ledger.time.efficiency import COMMUNICATION
from parlay.compiler.ledger.time.layer import domains_share, pair_of
from parlay.compiler.ledger.time.lines import CallTime
from parlay.compiler.ledger.time.machine import COMPONENT_OF
from parlay.compiler.ledger.time.step import Step
from parlay.compiler.spec.blocks import Spec

TIED: Final = "embedding"
"""The group of the first stage and the last."""
INSIDE: Final = {"kv": "tp"}
"""Groups that are a part of another one."""


def call_times(
    spec: Spec, layout: Layout, step: Step, lines: Sequence[CommLine]
) -> tuple[CallTime, ...]:
    """The times of `lines`, in their order.

    What a component exposes on the busiest stage is shared out among its lines there by their
    seconds; the sum of a tied embedding, on first and last stage, waits in full. A `recv` runs
    beside the peer's `send` and waits for nothing of its own.
    """
    factors = step.efficiency.factors
    names = [COMPONENT_OF.get(line.group, "dp") for line in lines]
    spent = [
        factors[name] * line.calls_per_step * _seconds(spec, layout, step, line)
        for name, line in zip(names, lines, strict=True)
    ]
    whole = dict.fromkeys(names, 0.0)
    for name, line, seconds in zip(names, lines, spent, strict=True):
        if line.collective != "recv" and line.group != TIED and step.busiest in line.stages:
            whole[name] += seconds
    sources: dict[tuple[str, str], str] = {}
    found = []
    for name, line, seconds in zip(names, lines, spent, strict=True):
        sent = (line.group, line.collective)
        if sent not in sources:
            sources[sent] = _source(sent, name, step, spec, layout)
        exposed = seconds if line.group == TIED and step.tied else 0.0
        if line.collective != "recv" and line.group != TIED and whole[name]:
            waited = step.parts.get(name, 0.0) - (step.tied if name == "dp" else 0.0)
            exposed = waited * factors[name] * seconds / whole[name]
        words = f"{line.calls_per_step} x {line.wire_bytes_per_call:.6g} B / {line.link}"
        formula = words if _is_measured(sources[sent]) else f"{words} x {factors[name]:.3g}"
        found.append(CallTime(seconds, exposed, formula, sources[sent]))
    return tuple(found)


def _seconds(spec: Spec, layout: Layout, step: Step, line: CommLine) -> float:
    """Of one call, at full efficiency."""
    wire = step.machine.wire(layout, INSIDE.get(line.group, line.group))
    if line.ranks != wire.size:
        wire = replace(wire, size=line.ranks)
    far, experts = 0.0, spec.model.experts if spec.model else None
    if line.collective == "all_to_all":
        far = step.machine.per_gpu_fabric("all_to_all", line.group)
        if experts is not None and step.efficiency.dispatch_once and line.group == "ep":
            far /= domains_share(experts, wire)
    name = "send" if line.collective == "recv" else line.collective
    return collectives.seconds(name, wire, line.bytes_per_call, far=far)


# ── Where it comes from ───────────────────────────────────────────────────────


def source_of(component: str, step: Step, spec: Spec, layout: Layout) -> str:
    """The source of a component of the step, a collective's or another's."""
    if component in COMMUNICATION:
        told = {
            _source(sent, component, step, spec, layout)
            for sent in _sent(component, step, spec, layout)
        }
        return "; ".join(sorted(told, reverse=True))
    if component in step.efficiency.measured:
        return _measured(spec)
    return f"efficiency.toml, {step.efficiency.family} and {step.efficiency.stack}"


def _sent(component: str, step: Step, spec: Spec, layout: Layout) -> Iterator[tuple[str, str]]:
    """The groups and collectives that a component of the step is priced by."""
    match component:
        case "tp":
            if layout.size("tp") > 1:
                yield from (("tp", name) for name in pair_of(spec.parallel))
            if "etp" in layout.kinds and layout.size("etp") > 1:
                yield "etp", "all_gather"
        case "cp" | "pp":
            yield component, "send"
        case "ep":
            yield component, "all_to_all"
        case _:
            yield from ((each.group, each.collective) for each in step.transfers)
            if step.tied:
                yield TIED, "all_reduce"


def _source(sent: tuple[str, str], component: str, step: Step, spec: Spec, layout: Layout) -> str:
    group, collective = sent
    wire = step.machine.wire(layout, INSIDE.get(group, group))
    if ("send" if collective == "recv" else collective) in wire.measured:
        return _measured(spec)
    return f"efficiency.toml, {component} of {step.efficiency.stack}; {wire.link} as stated"


def _is_measured(source: str) -> bool:
    return source.startswith("measured, ")


def _measured(spec: Spec) -> str:
    assert spec.cluster is not None and spec.cluster.calibration is not None
    return f"measured, {spec.cluster.calibration.source}"
