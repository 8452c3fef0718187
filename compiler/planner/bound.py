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
from parlay.compiler.layout import Stage
from parlay.compiler.ledger.memory.chunk import Layers
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
    """What all layouts with the same degrees, order and schedule share.

    `counts` are the blocks of each pipeline rank, `first` the chunks of rank 0 and `held` its
    parameters; `share` is what of the other ranks' time a schedule waits for.
    """

    subject: Subject
    chosen: Mapping[str, Any]
    degrees: tuple[int, ...]
    dp: int
    pp: int
    batch: int
    schedule: Setting
    share: float
    counts: tuple[tuple[float, ...], ...]
    first: tuple[Stage, ...]
    held: Parameters
    shards: Shards

    @classmethod
    def of(cls, subject: Subject, chosen: Mapping[str, Any]) -> Grid:
        """The grid of a job whose degrees are decided."""
        spec, layout, parallel = subject.spec, subject.laid_out, subject.parallel
        first = sorted((c for c in layout.stages if c.stage == 0), key=lambda c: c.chunk)
        counts = stages.shares(spec, layout)
        expert = layout.size("edp") if "edp" in layout.kinds else 1
        return cls(
            subject,
            chosen,
            (parallel.tp, parallel.cp, parallel.ep, parallel.etp),
            parallel.dp,
            parallel.pp,
            subject.train.global_batch,
            parallel.schedule,
            bubble.waiting_share(parallel.schedule, parallel.pp),
            counts,
            tuple(first),
            held_by_rank(spec, layout, 0),
            Shards(layout.size("shard"), expert),
        )


@dataclass(frozen=True, slots=True)
class Rest:
    """What is decided on a grid that stands, with what its bounds hang on."""

    chosen: Mapping[str, Any]
    micro_batch: int
    zero: int
    work: tuple[Any, ...]

    @classmethod
    def of(cls, subject: Subject, chosen: Mapping[str, Any]) -> Rest:
        """`chosen` over what the job has already."""
        known = Known(subject, chosen)
        micro, zero = known["train.micro_batch"], known["parallel.zero"]
        words = (spelling(known["train.recompute"]), spelling(known["parallel.cp_method"]))
        return cls(chosen, micro, zero, (micro, *words, zero >= 2))


class Bounds:
    """Bounds of many layouts, each shared part worked out once."""

    def __init__(self) -> None:
        self._work: dict[tuple[Any, ...], tuple[tuple[float, ...], Layers]] = {}
        self._busy: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._each: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._held: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._kept: dict[tuple[Any, ...], int] = {}

    def of(self, grid: Grid, rest: Rest) -> Bound:
        """The bound of `grid` with the rest; none where the batch does not come out even."""
        m, odd = divmod(grid.batch, rest.micro_batch * grid.dp)
        if odd or not m:
            return NOTHING
        key = (grid.degrees, rest.work)
        if key not in self._work:
            self._work[key] = _work(grid.subject.with_values(rest.chosen).spec)
        blocks, layers = self._work[key]
        at: tuple[Any, ...] = (key, grid.counts)
        if at not in self._busy:
            times = [
                sum(number * each for number, each in zip(row, blocks, strict=True))
                for row in grid.counts
            ]
            self._busy[at] = max(times), sum(times)
        busiest, whole = self._busy[at]
        at = (key, grid.first)
        if at not in self._each:
            self._each[at] = tuple(
                sum(part.value_bytes for part in layers.counts(chunk)) for chunk in grid.first
            )
        seconds = m * busiest + grid.share * (whole - busiest)
        held = sum(n * size for n, size in zip(self._flight(grid, m), self._each[at], strict=True))
        return Bound(seconds, self._state(grid, rest.zero) + held)

    def _flight(self, grid: Grid, m: int) -> tuple[int, ...]:
        """Microbatches of each chunk of rank 0 that are held at one moment.

        At the moment of most chunks, whatever they weigh: no more than at that of most bytes.
        """
        chunks, pp, schedule = len(grid.first), grid.pp, grid.schedule
        m = min(m, 4 * pp) if schedule.name != "gpipe" else m
        key = (spelling(schedule), pp, m, chunks)
        if key not in self._held:
            odd = schedule.name == "interleaved" and m % pp
            # A schedule that may not run with so few is refused by a rule.
            self._held[key] = (
                (1,) * chunks
                if odd or schedule.name.startswith("dualpipe")
                else in_flight(schedule, pp=pp, microbatches=m, stage=0, weights=(1.0,) * chunks)
            )
        return self._held[key]

    def _state(self, grid: Grid, zero: int) -> int:
        key = (grid.held, zero, grid.shards)
        if key not in self._kept:
            spec = grid.subject.spec
            spec = replace(spec, parallel=replace(spec.parallel, zero=zero))
            lines = kept(spec, grid.held, grid.shards).lines
            self._kept[key] = sum(line.value_bytes for line in lines) + spec.budget.reserve_bytes
        return self._kept[key]


def _work(spec: Spec) -> tuple[tuple[float, ...], Layers]:
    """Seconds of each kind of block for one microbatch, and what layers keep of it."""
    rates = measured.over(efficiency.of(spec), spec)
    machine = Machine.of(spec, units=rates.units, peak=rates.peak)
    blocks = stages.kinds(spec, machine, ALONE, rates)
    each = tuple(block.seconds_forward + block.seconds_backward for block in blocks)
    return each, Layers(sizes_of(spec))
