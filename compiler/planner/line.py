"""A pipeline as a bound sees it: the blocks of its ranks, and what they wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.time import stages
from parlay.compiler.ledger.time.bubble import Split, waiting_share
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.schema import Setting


class Passed(NamedTuple):
    """Seconds of all microbatches through a pipeline; its busiest rank, and those of one on it."""

    seconds: float
    rank: int
    forward: float
    backward: float


@dataclass(frozen=True, slots=True)
class Line:
    """A pipeline: what all grids with the same pp and schedule share.

    `first` are the chunks of rank 0, `whole` the blocks of all ranks, `kinds` those of each, every
    kind of rank once, and `ranks` the first rank of each; `share` is the least of the other ranks'
    time that the schedule waits for.
    """

    layout: Layout
    first: tuple[Stage, ...]
    whole: tuple[float, ...]
    kinds: tuple[tuple[float, ...], ...]
    ranks: tuple[int, ...]
    share: float
    schedule: Setting
    words: str
    pp: int

    @classmethod
    def of(cls, spec: Spec, layout: Layout) -> Line:
        """The pipeline of a job whose pp and schedule are decided."""
        schedule, pp = spec.parallel.schedule, spec.parallel.pp
        first = sorted((c for c in layout.stages if c.stage == 0), key=lambda c: c.chunk)
        counts = stages.shares(spec, layout)
        kinds = tuple(dict.fromkeys(counts))
        return cls(
            layout,
            tuple(first),
            tuple(sum(column) for column in zip(*counts, strict=True)),
            kinds,
            tuple(counts.index(each) for each in kinds),
            waiting_share(schedule, pp),
            schedule,
            spelling(schedule),
            pp,
        )

    def seconds(self, each: Sequence[float], m: float, waits: float) -> float:
        """Of `m` microbatches through the busiest rank, and of `waits` that it waits for others.

        `each` are the seconds of each kind of block. The schedule waits as little as it may.
        """
        busiest = max([sum(map(mul, counts, each)) for counts in self.kinds])
        rest = sum(map(mul, self.whole, each)) - busiest
        return float(m * busiest + self.share * waits * rest)

    def passed(self, blocks: Sequence[stages.Block], m: int) -> Passed:
        """Of `m` microbatches: the schedule waits as the halves of the backward have it."""
        each = [block.seconds_forward + block.seconds_backward for block in blocks]
        times = [sum(map(mul, counts, each)) for counts in self.kinds]
        busiest = max(times)
        at = times.index(busiest)
        forward = sum(map(mul, self.kinds[at], [block.seconds_forward for block in blocks]))
        late = sum(map(mul, self.kinds[at], [block.seconds_weights for block in blocks]))
        split = Split(forward, busiest - forward - late, late)
        share = waiting_share(self.schedule, self.pp, split)
        rest = sum(map(mul, self.whole, each)) - busiest
        return Passed(m * busiest + share * rest, self.ranks[at], forward, busiest - forward)
