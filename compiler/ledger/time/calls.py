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
from parlay.compiler.ledger.time.machine import COMPONENT_OF, Wire
from parlay.compiler.ledger.time.step import Step
from parlay.compiler.spec.blocks import Spec

TIED: Final = "embedding"
"""The group of the first stage and the last."""
INSIDE: Final = {"kv": "tp", "mirror": "embedding"}
"""Groups that are a part of another one, or no farther apart than it."""


def call_times(
    spec: Spec, layout: Layout, step: Step, lines: Sequence[CommLine]
) -> tuple[CallTime, ...]:
    """The times of `lines`, in their order.

    What a component exposes on the busiest stage is shared out among its lines there by their
    seconds; the sum of a tied embedding, on first and last stage, waits in full. A `recv` runs
    beside the peer's `send` and waits for nothing of its own.
    """
    factors, parts, busiest = step.efficiency.factors, step.parts, step.busiest
    wires: dict[tuple[str, int], Wire] = {}
    spent: list[tuple[str, float, bool]] = []
    whole: dict[str, float] = {}
    for line in lines:
        group, collective = line.group, line.collective
        name = COMPONENT_OF.get(group, "dp")
        over = (group, line.ranks)
        if over not in wires:
            wires[over] = _wire(layout, step, line)
        each = _seconds(spec, step, line, wires[over])
        seconds = factors[name] * line.calls_per_step * each
        shared = collective != "recv" and group != TIED
        if shared and busiest in line.stages:
            whole[name] = whole.get(name, 0.0) + seconds
        spent.append((name, seconds, shared))
    sources: dict[tuple[str, str], tuple[str, str]] = {}
    found = []
    for line, (name, seconds, shared) in zip(lines, spent, strict=True):
        sent = (line.group, line.collective)
        if sent not in sources:
            source = _source(sent, name, step, spec, layout)
            sources[sent] = source, "" if _is_measured(source) else f" x {factors[name]:.3g}"
        source, factor = sources[sent]
        exposed = seconds if line.group == TIED and step.tied else 0.0
        if shared and whole.get(name):
            waited = parts.get(name, 0.0) - (step.tied if name == "dp" else 0.0)
            exposed = waited * factors[name] * seconds / whole[name]
        formula = f"{line.calls_per_step} x {line.wire_bytes_per_call:.6g} B / {line.link}{factor}"
        found.append(CallTime(seconds, exposed, formula, source))
    return tuple(found)


def _wire(layout: Layout, step: Step, line: CommLine) -> Wire:
    """What a line is sent through: that of its group, or of the part of it that takes part."""
    wire = step.machine.wire(layout, INSIDE.get(line.group, line.group))
    return wire if line.ranks == wire.size else replace(wire, size=line.ranks)


def _seconds(spec: Spec, step: Step, line: CommLine, wire: Wire) -> float:
    """Of one call, at full efficiency."""
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
