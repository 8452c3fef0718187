"""The least that layouts can take: seconds of computation, bytes of what is held for sure.

Layouts share nearly all of it, so a bound costs microseconds where the ledger takes milliseconds.
It is made of the ledger's own functions, with less in it. Seconds: every microbatch through the
fullest stage and what the schedule waits, first without a message, then with those of the layers
over the wires of an order. Bytes: state, reserve and activations of pipeline rank 0 at its
backward, nothing that runs beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2
from operator import mul
from typing import Any, Final, NamedTuple

from parlay.compiler.layout import Layout, Placement, Reach, Stage
from parlay.compiler.ledger.memory.book import Book
from parlay.compiler.ledger.memory.chunk import Layers
from parlay.compiler.ledger.memory.ends import unasked
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.ledger.memory.sizes import sizes_of
from parlay.compiler.ledger.memory.states import Shards, kept
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.time import efficiency, measured, stages
from parlay.compiler.ledger.time.bubble import waiting_share
from parlay.compiler.ledger.time.layer import Wires
from parlay.compiler.ledger.time.machine import Machine, Wire
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.stem import Stem, Values
from parlay.compiler.spec.blocks import Parallel, Spec
from parlay.compiler.spec.schema import Setting

MANY: Final = 2**20
"""Sequences side by side that no kernel's start and no empty tile tells in."""
ALONE: Final = Wires(None, None, None, None, 0.0)
"""No wire to any rank."""


class Bound(NamedTuple):
    """A step takes at least so many seconds, its fullest rank at least so many bytes."""

    seconds: float
    bytes: int


class Work(NamedTuple):
    """A microbatch and what is computed again: `number` is its place among all that were met."""

    number: int
    chosen: Values
    micro_batch: int
    recompute: Setting


@dataclass(frozen=True, slots=True)
class Line:
    """A pipeline: what all grids with the same pp and schedule share.

    `first` are the chunks of rank 0, `whole` the blocks of all ranks and `fullest` those of each,
    every kind of rank once; `share` is what of the other ranks' time the schedule waits for.
    """

    layout: Layout
    first: tuple[Stage, ...]
    whole: tuple[float, ...]
    fullest: tuple[tuple[float, ...], ...]
    share: float
    words: str
    pp: int

    @classmethod
    def of(cls, spec: Spec, layout: Layout) -> Line:
        """The pipeline of a job whose pp and schedule are decided."""
        schedule, pp = spec.parallel.schedule, spec.parallel.pp
        first = sorted((c for c in layout.stages if c.stage == 0), key=lambda c: c.chunk)
        counts = stages.shares(spec, layout)
        return cls(
            layout,
            tuple(first),
            tuple(sum(column) for column in zip(*counts, strict=True)),
            tuple(dict.fromkeys(counts)),
            waiting_share(schedule, pp),
            spelling(schedule),
            pp,
        )

    def seconds(self, each: tuple[float, ...], m: float, waits: float) -> float:
        """Of `m` microbatches through the busiest rank, and of `waits` that it waits for others.

        `each` are the seconds of each kind of block.
        """
        busiest = max([sum(map(mul, counts, each)) for counts in self.fullest])
        rest = sum(map(mul, self.whole, each)) - busiest
        return float(m * busiest + self.share * waits * rest)


@dataclass(frozen=True)
class Grid:
    """A stem with its schedule: what all layouts on it share; `held` are rank 0's parameters."""

    stem: Stem
    chosen: Values
    schedule: Values
    spec: Spec
    line: Line
    held: Parameters

    def microbatches(self, work: Work) -> int:
        """Those of one replica; 0 where the batch does not come out even."""
        train = self.spec.train
        assert train is not None
        m, odd = divmod(train.global_batch, work.micro_batch * self.spec.parallel.dp)
        return 0 if odd else m


class Bounds:
    """Bounds of many layouts, each shared part worked out once."""

    def __init__(self, spec: Spec) -> None:
        rates = measured.over(efficiency.of(spec), spec)
        self.rates = rates
        assert spec.cluster is not None
        straggle = 0.01 * log2(max(1.0, spec.cluster.gpus / 8)) * rates.factors["straggle"]
        self.slower = (1.0 + straggle) * (1.0 - 1e-12)
        """By how much a step is longer than its parts, for the slowest of all ranks; less what
        rounding may take from either."""
        self.reserve = int(spec.budget.reserve_bytes)
        self._alone: dict[Any, tuple[float, ...]] = {}
        self._layers: dict[Any, list[Layers]] = {}
        self._each: dict[Any, tuple[int, ...]] = {}
        self._flight: dict[Any, tuple[int, ...]] = {}
        self._kept: dict[Any, int] = {}
        self._blocks: dict[Any, tuple[stages.Block, ...]] = {}
        self._ideal: dict[Any, tuple[float, ...]] = {}
        self._nearest: dict[Any, Wires] = {}
        self._largest: dict[Any, int] = {}
        self._inside: dict[Any, int] = {}

    # ── Seconds ───────────────────────────────────────────────────────────────

    def of_grid(self, grid: Grid, works: Sequence[Work], *, scattered: bool) -> float:
        """Of a step with any of `works`, each sequence at the speed of very many side by side."""
        recomputes = {spelling(work.recompute): work for work in works}
        each: list[tuple[float, ...]] = []
        for words, work in recomputes.items():
            key = (grid.stem.shape, words, scattered)
            if key not in self._ideal:
                many = work._replace(micro_batch=MANY)
                found = self._blocks_alone(grid, many, scattered=scattered)
                self._ideal[key] = tuple([(1.0 - 1e-3) / MANY * seconds for seconds in found])
            each.append(self._ideal[key])
        least = tuple(map(min, *each)) if len(each) > 1 else each[0]
        train = grid.spec.train
        assert train is not None
        sequences = train.global_batch / grid.spec.parallel.dp
        return self.slower * grid.line.seconds(least, sequences, works[0].micro_batch)

    def seconds(self, grid: Grid, work: Work, m: int, *, scattered: bool) -> float:
        """Of a step, the groups of the layers as near as ranks can be, no other message sent.

        `scattered` where ZeRO 2 or 3 may be chosen.
        """
        key = (grid.stem.shape, work.number, scattered)
        if key not in self._alone:
            self._alone[key] = self._blocks_alone(grid, work, scattered=scattered)
        return self.slower * grid.line.seconds(self._alone[key], m, 1.0)

    def _blocks_alone(self, grid: Grid, work: Work, *, scattered: bool) -> tuple[float, ...]:
        spec = worked(grid.spec, work, scattered=scattered)
        machine = self.machine(spec)
        shape = grid.stem.shape
        if shape not in self._nearest:
            self._nearest[shape] = _nearest(spec, machine)
        found = stages.kinds(spec, machine, self._nearest[shape], self.rates)
        return tuple([block.seconds_forward + block.seconds_backward for block in found])

    def blocks(
        self, grid: Grid, work: Work, wires: tuple[Any, ...], layout: Layout, *, scattered: bool
    ) -> tuple[stages.Block, ...]:
        """The work of a microbatch over the wires of a layout; `wires` tell them from others."""
        key = (grid.stem.shape, work.number, scattered, wires)
        if key not in self._blocks:
            spec = worked(grid.spec, work, scattered=scattered)
            machine = self.machine(spec)
            joined = stages.wires(layout, machine)
            self._blocks[key] = stages.kinds(spec, machine, joined, self.rates)
        return self._blocks[key]

    def machine(self, spec: Spec) -> Machine:
        """The machine of a job, no wire of it known yet."""
        rates = self.rates
        return Machine.of(spec, units=rates.units, peak=rates.peak, factors=rates.factors)

    def over_wires(
        self, grid: Grid, work: Work, m: int, layout: Layout, wires: tuple[Any, ...], *, zero: int
    ) -> float:
        """Seconds of a step with the messages of layers, and no others.

        `wires` say how far the groups of `layout` reach that those go over.
        """
        blocks = self.blocks(grid, work, wires, layout, scattered=zero >= 2)
        each = tuple(block.seconds_forward + block.seconds_backward for block in blocks)
        return self.slower * grid.line.seconds(each, m, 1.0)

    # ── Bytes ─────────────────────────────────────────────────────────────────

    def activations(self, grid: Grid, work: Work, m: int) -> int:
        """What pipeline rank 0 keeps of the microbatches in flight."""
        return sum(map(mul, self._held(grid, m), self.of_one(grid, work)))

    def inside(self, grid: Grid, work: Work) -> int:
        """What runs in the backward of a layer of rank 0, beside all that is kept."""
        first = grid.line.first
        key = (grid.stem.shape, work.number, first)
        if key not in self._inside:
            found = []
            for spec in _methods(grid, work):
                book = Book(spec, grid.line.layout)
                kept = tuple(book.chunk(chunk) for chunk in first)
                beside = sum(line.value_bytes for line in book.running)
                found.append(book.backward(kept).value_bytes + beside)
            self._inside[key] = min(found)
        return self._inside[key]

    def largest(self, grid: Grid, works: Sequence[Work], room: float) -> int:
        """Of works with the same recompute, the fewest sequences first, how many may fit."""
        last = works[-1]
        key = (grid.stem.shape, grid.line.first, len(works), last.number, room)
        if key not in self._largest:
            self._largest[key] = bisect_right(
                works, room, key=lambda work: max(self.of_one(grid, work))
            )
        return self._largest[key]

    def of_one(self, grid: Grid, work: Work) -> tuple[int, ...]:
        """What each chunk of pipeline rank 0 keeps of one microbatch.

        Never less for more sequences in it.
        """
        first = grid.line.first
        key = (grid.stem.shape, work.number, first)
        found = self._each.get(key)
        if found is None:
            at = key[:2]
            if at not in self._layers:
                self._layers[at] = [Layers(sizes_of(spec)) for spec in _methods(grid, work)]
            found = self._each[key] = tuple(
                [
                    min(
                        sum([part.value_bytes for part in layers.counts(chunk)])
                        + _spared(layers, chunk)
                        for layers in self._layers[at]
                    )
                    for chunk in first
                ]
            )
        return found

    def _held(self, grid: Grid, m: int) -> tuple[int, ...]:
        """Microbatches of each chunk of rank 0 that are held at one moment.

        At the moment of most chunks, whatever they weigh: no more than at that of most bytes.
        """
        schedule, pp, chunks = grid.spec.parallel.schedule, grid.line.pp, len(grid.line.first)
        m = min(m, 4 * pp) if schedule.name != "gpipe" else m
        key = (grid.line.words, pp, m, chunks)
        if key not in self._flight:
            odd = schedule.name == "interleaved" and m % pp
            uneven = schedule.name == "dualpipe" and (pp % 2 or m % 2)
            few = schedule.name.startswith("dualpipe") and (m < 2 * pp or uneven)
            # A schedule that may not run with so few is refused by a rule.
            self._flight[key] = (
                (1,) * chunks
                if odd or few
                else in_flight(schedule, pp=pp, microbatches=m, stage=0, weights=(1.0,) * chunks)
            )
        return self._flight[key]

    def state(self, grid: Grid, zero: int, shards: Shards) -> int:
        """State of rank 0 under a ZeRO stage, and the budget's reserve."""
        key = (grid.held, zero, shards)
        if key not in self._kept:
            spec = grid.spec
            spec = replace(spec, parallel=replace(spec.parallel, zero=zero))
            lines = kept(spec, grid.held, shards).lines
            self._kept[key] = sum(line.value_bytes for line in lines) + self.reserve
        return self._kept[key]

    def least_state(self, grid: Grid) -> int:
        """The least state of rank 0 on a grid: every ZeRO stage over as many ranks as it can."""
        parallel = grid.spec.parallel
        ranks = parallel.dp * parallel.cp
        held = parallel.tp * ranks // (parallel.ep * parallel.etp) or 1
        zeros, dense = grid.stem.zeros
        return min([self.state(grid, zero, Shards(dense, held)) for zero in zeros])


def worked(spec: Spec, work: Work, *, scattered: bool) -> Spec:
    """The job with a microbatch and a recompute; `scattered` where gradients are, as in ZeRO 2."""
    train, parallel = spec.train, spec.parallel
    assert train is not None
    train = replace(train, micro_batch=work.micro_batch, recompute=work.recompute)
    return replace(spec, train=train, parallel=_zero(parallel, 2 if scattered else 0))


def _methods(grid: Grid, work: Work) -> Iterator[Spec]:
    """The job with a work under every method of context parallelism that may be chosen."""
    spec = worked(grid.spec, work, scattered=False)
    for method in grid.stem.lists["method"].ways:
        chosen = method.get("parallel.cp_method", spec.parallel.cp_method)
        yield replace(spec, parallel=replace(spec.parallel, cp_method=chosen))


def _spared(layers: Layers, chunk: Stage) -> int:
    """Less than its layers that a chunk keeps of one microbatch: nothing, but under adapters."""
    if layers.sizes.train.lora is None or not chunk.embedding:
        return 0
    return sum(line.value_bytes for line in unasked(layers.sizes, 1))


def _zero(parallel: Parallel, zero: int) -> Parallel:
    return parallel if parallel.zero == zero else replace(parallel, zero=zero)


def _nearest(spec: Spec, machine: Machine) -> Wires:
    """The wires of groups whose ranks are neighbours: no order of the axes has better ones."""
    cluster, parallel = spec.cluster, spec.parallel
    assert cluster is not None
    if cluster.calibration is not None:
        return ALONE  # what was measured over one wire says nothing of another
    placement = Placement.of(cluster)

    def of(size: int) -> Wire | None:
        if size == 1:
            return None
        nodes, domains = -(-size // placement.node), -(-size // placement.domain)
        link = placement.wire(nodes=nodes, domains=domains)
        return machine.nearest(Reach(size, 1, nodes, domains, link, 0.0))

    far = machine.per_gpu_fabric("all_to_all", "ep")
    return Wires(of(parallel.tp), of(parallel.cp), of(parallel.ep), of(parallel.etp), far)
