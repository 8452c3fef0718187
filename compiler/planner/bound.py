"""The least that a layout can take: seconds of computation alone, bytes of what is held for sure.

Layouts share nearly all of it, so a bound costs microseconds where the ledger takes milliseconds.
Seconds: every microbatch through the fullest stage, no message sent. Bytes: state, reserve and
activations of pipeline rank 0 at its backward, nothing that runs beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.memory.chunk import Count, Layers
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.ledger.memory.sizes import sizes_of
from parlay.compiler.ledger.memory.states import Shards, kept
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.time import bubble, efficiency, measured, stages
from parlay.compiler.ledger.time.layer import Wires
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.ledger.time.step import held_by_rank
from parlay.compiler.planner.space import Known
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.schema import Setting

ALONE = Wires(None, None, None, None, 0.0)
"""No wire to any rank."""


class Bound(NamedTuple):
    """A step takes at least so many seconds, its fullest rank at least so many bytes."""

    seconds: float
    bytes: int


NOTHING = Bound(0.0, 0)


@dataclass(frozen=True, slots=True)
class Grid:
    """What all layouts with the same degrees, order and schedule share."""

    subject: Subject
    layout: Layout
    counts: tuple[tuple[float, ...], ...]
    first: tuple[Stage, ...]
    held: Parameters

    @classmethod
    def of(cls, subject: Subject, layout: Layout) -> Grid:
        """The grid of a job whose degrees are decided."""
        spec = subject.spec
        first = sorted((c for c in layout.stages if c.stage == 0), key=lambda c: c.chunk)
        counts, _ = stages.shares(spec, layout)
        return cls(subject, layout, counts, tuple(first), held_by_rank(spec, layout, 0))


class Bounds:
    """Bounds of many layouts, each shared part worked out once."""

    def __init__(self) -> None:
        self._work: dict[tuple[Any, ...], tuple[tuple[float, ...], Layers]] = {}
        self._busy: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._kept: dict[tuple[Any, ...], int] = {}

    def of(self, grid: Grid, chosen: Mapping[str, Any]) -> Bound:
        """The bound of `grid` with the rest chosen; none where the batch does not come out even."""
        known = Known(grid.subject, chosen)
        micro, batch = known["train.micro_batch"], known["train.global_batch"]
        m, rest = divmod(batch, micro * known.size("dp"))
        if rest or not m:
            return NOTHING
        key = self._key(known)
        if key not in self._work:
            self._work[key] = _work(grid.subject.with_values(chosen).spec)
        blocks, layers = self._work[key]
        busiest, whole = self._rank(grid, key, blocks)
        schedule: Setting = known["parallel.schedule"]
        pp = known.size("pp")
        share = bubble.waiting_share(schedule, pp)
        seconds = m * busiest + share * (whole - busiest)
        return Bound(seconds, self._bytes(grid, known, layers, schedule, m))

    def _key(self, known: Known) -> tuple[Any, ...]:
        """All that a layer's work hangs on."""
        return (
            *(known.size(axis) for axis in ("tp", "cp", "ep", "etp")),
            known["train.micro_batch"],
            spelling(known["train.recompute"]),
            spelling(known["parallel.cp_method"]),
            known["parallel.zero"] >= 2,
        )

    def _rank(
        self, grid: Grid, key: tuple[Any, ...], blocks: tuple[float, ...]
    ) -> tuple[float, float]:
        """Seconds of a microbatch on the busiest rank, and summed over the ranks."""
        at = (key, grid.counts)
        if at not in self._busy:
            times = [
                sum(number * each for number, each in zip(row, blocks, strict=True))
                for row in grid.counts
            ]
            self._busy[at] = max(times), sum(times)
        return self._busy[at]

    def _bytes(self, grid: Grid, known: Known, layers: Layers, schedule: Setting, m: int) -> int:
        counts = [layers.counts(chunk) for chunk in grid.first]
        each = [sum(map(_one, parts)) for parts in counts]
        pp = known.size("pp")
        runs = schedule.name != "interleaved" or m % pp == 0
        if schedule.name.startswith("dualpipe") or not runs:
            number = sum(each)  # whatever a schedule holds that may not run with so few
        else:
            held = in_flight(schedule, pp=pp, microbatches=m, stage=0, weights=each)
            number = sum(n * size for n, size in zip(held, each, strict=True))
        return self._state(grid, known) + number

    def _state(self, grid: Grid, known: Known) -> int:
        spec = grid.subject.spec
        zero, shard = known["parallel.zero"], known["parallel.shard"]
        dense = shard if shard is not None else known.size("dp") * known.size("cp")
        expert = grid.layout.size("edp") if "edp" in grid.layout.kinds else 1
        at = (grid.held, zero, dense, expert)
        if at not in self._kept:
            spec = replace(spec, parallel=replace(spec.parallel, zero=zero))
            lines = kept(spec, grid.held, Shards(dense, expert)).lines
            self._kept[at] = sum(line.value_bytes for line in lines) + spec.budget.reserve_bytes
        return self._kept[at]


def _work(spec: Spec) -> tuple[tuple[float, ...], Layers]:
    """Seconds of each kind of block for one microbatch, and what layers keep of it."""
    rates = measured.over(efficiency.of(spec), spec)
    machine = Machine.of(spec, units=rates.units, peak=rates.peak)
    blocks = stages.kinds(spec, machine, ALONE, rates)
    each = tuple(block.seconds_forward + block.seconds_backward for block in blocks)
    return each, Layers(sizes_of(spec))


def _one(part: Count) -> int:
    layer = part.layer
    return part.again * layer.input_bytes + (part.layers - part.again) * layer.kept_bytes
