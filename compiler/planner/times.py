"""The least seconds that layouts can take, closer with each list that is decided.

Layouts share nearly all of it, so a bound costs microseconds where the ledger takes milliseconds.
It is made of the ledger's own functions, with less in it: every microbatch through the busiest rank
and what the schedule waits, the layers' messages over the wires of an order; then also what sums
gradients and gathers parameters. No message between stages, no update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log2
from typing import Any, Final

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.ledger.time import efficiency, measured, stages, traffic
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.ledger.time.step import held_by_rank
from parlay.compiler.planner.line import Passed
from parlay.compiler.planner.sets import Grid, Place, Way, Work
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.spec.blocks import Parallel, Spec

MANY: Final = 2**20
"""Sequences side by side that no kernel's start and no empty tile tells in."""

Traffic = tuple[Place, list[traffic.Transfer], list[traffic.Transfer]]
"""What a place sends for each microbatch, and once a step."""


class Times:
    """Seconds of many sets of layouts, each shared part worked out once."""

    def __init__(self, spec: Spec) -> None:
        self.rates = measured.over(efficiency.of(spec), spec)
        assert spec.cluster is not None
        straggle = 0.01 * log2(max(1.0, spec.cluster.gpus / 8)) * self.rates.factors["straggle"]
        self.slower = (1.0 + straggle) * (1.0 - 1e-12)
        """By how much a step is longer than its parts, for the slowest of all ranks; less what
        rounding may take from either."""
        self._ideal: dict[Any, tuple[float, ...]] = {}
        self._blocks: dict[Any, tuple[stages.Block, ...]] = {}
        self._traffic: dict[Any, Traffic] = {}
        self._held: dict[Any, Parameters] = {}

    def of_grid(
        self, grid: Grid, works: Sequence[Work], ways: Iterable[Way], *, scattered: bool
    ) -> float:
        """Of a step with any of `works` in any order, the fewest sequences first.

        `scattered` where ZeRO 2 or 3 may be chosen.
        """
        # What is computed again only adds to a backward.
        least = [work for work in works if work.recompute.name == "none"] or works
        return min(
            (
                self.ideal(grid, work, way, works[0].micro_batch, scattered=scattered)
                for way in ways
                for work in least
            ),
            default=0.0,
        )

    def ideal(
        self, grid: Grid, work: Work, way: Way, micro_batch: int, *, scattered: bool
    ) -> float:
        """Of a step with the recompute of `work` in one order, each sequence at the speed of very
        many side by side, and of one microbatch of `micro_batch` that ranks wait for each other."""
        words = spelling(work.recompute)
        key = (grid.stem.shape, words, scattered, way.wires)
        if key not in self._ideal:
            many = work._replace(micro_batch=MANY)
            found = self._made(grid, many, way.layout, scattered=scattered)
            self._ideal[key] = tuple(
                [
                    (1.0 - 1e-3) / MANY * (block.seconds_forward + block.seconds_backward)
                    for block in found
                ]
            )
        train = grid.spec.train
        assert train is not None
        sequences = train.global_batch / grid.spec.parallel.dp
        return self.slower * grid.line.seconds(self._ideal[key], sequences, micro_batch)

    def of_order(self, grid: Grid, work: Work, m: int, way: Way, *, scattered: bool) -> float:
        """Of a step in one order, with the messages of its layers and no others."""
        return self.slower * self.passed(grid, work, m, way, scattered=scattered).seconds

    def of_place(self, grid: Grid, work: Work, m: int, way: Way, place: Place) -> float:
        """The same with what its ranks send of gradients and parameters."""
        passed = self.passed(grid, work, m, way, scattered=place.zero >= 2)
        if grid.spec.train is not None and grid.spec.train.lora is not None:
            return self.slower * passed.seconds  # adapters are few, and what they send little
        _, each, once = self._sent(grid, place, passed.rank)
        hidden = self.rates.overlap_dp if grid.spec.parallel.overlap else 0.0

        def waited(found: list[traffic.Transfer]) -> float:
            return traffic.exposed(
                found,
                share=hidden,
                forward=passed.forward,
                backward=passed.backward,
                microbatches=1,
            )

        sent = m * waited(each) + waited(once)
        return self.slower * (passed.seconds + self.rates.factors["dp"] * sent)

    def passed(self, grid: Grid, work: Work, m: int, way: Way, *, scattered: bool) -> Passed:
        """The pipeline of a step in one order."""
        key = (grid.stem.shape, work.number, scattered, way.wires)
        blocks = self._blocks.get(key)
        if blocks is None:
            blocks = self._blocks[key] = self._made(grid, work, way.layout, scattered=scattered)
        return grid.line.passed(blocks, m)

    def _made(
        self, grid: Grid, work: Work, layout: Layout | None, *, scattered: bool
    ) -> tuple[stages.Block, ...]:
        assert layout is not None
        spec = worked(grid.spec, work, scattered=scattered)
        machine = self._machine(spec)
        return stages.kinds(spec, machine, stages.wires(layout, machine), self.rates)

    def _machine(self, spec: Spec) -> Machine:
        """The machine of a job, no wire of it known yet."""
        rates = self.rates
        return Machine.of(spec, units=rates.units, peak=rates.peak, factors=rates.factors)

    def _sent(self, grid: Grid, place: Place, rank: int) -> Traffic:
        """What rank `rank` of the pipeline sends of gradients and parameters."""
        held = self._held_by(grid, rank)
        key = (id(place), grid.line.schedule.name, held)
        if key not in self._traffic:
            spec, rates = grid.spec, self.rates
            assert spec.train is not None
            found = list(
                traffic.transfers(
                    zeroed(spec.parallel, place.zero),
                    spec.train,
                    place.layout,
                    self._machine(spec),
                    held,
                    1,
                    bucket=rates.bucket,
                    broadcast=rates.broadcast,
                )
            )
            each = [one for one in found if one.when != "step"]
            once = [one for one in found if one.when == "step"]
            self._traffic[key] = place, each, once
        return self._traffic[key]

    def _held_by(self, grid: Grid, rank: int) -> Parameters:
        if rank == 0:
            return grid.held
        parallel = grid.spec.parallel
        key = (grid.line.words, grid.line.pp, rank, parallel.tp, parallel.ep, parallel.etp)
        if key not in self._held:
            self._held[key] = held_by_rank(grid.spec, grid.line.layout, rank)
        return self._held[key]


def worked(spec: Spec, work: Work, *, scattered: bool = False) -> Spec:
    """The job with a microbatch and a recompute; `scattered` where gradients are, as in ZeRO 2."""
    train = spec.train
    assert train is not None
    train = replace(train, micro_batch=work.micro_batch, recompute=work.recompute)
    return replace(spec, train=train, parallel=zeroed(spec.parallel, 2 if scattered else 0))


def zeroed(parallel: Parallel, zero: int) -> Parallel:
    """The degrees under a ZeRO stage."""
    return parallel if parallel.zero == zero else replace(parallel, zero=zero)
