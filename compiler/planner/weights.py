"""The least bytes that the fullest rank of layouts holds: what pipeline rank 0 does.

State, reserve and activations at its backward, then also what runs in the backward of a layer; made
of the ledger's own functions, each shared part worked out once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import mul
from typing import Any, NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.memory.book import Book
from parlay.compiler.ledger.memory.chunk import Layers
from parlay.compiler.ledger.memory.ends import unasked
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.ledger.memory.sizes import sizes_of
from parlay.compiler.ledger.memory.states import Shards, kept
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.planner.sets import Core, Grid, Work
from parlay.compiler.planner.stem import Values
from parlay.compiler.planner.times import worked, zeroed
from parlay.compiler.spec.blocks import Model, Spec


class Floor(NamedTuple):
    """With a method of context parallelism, the parameters of a rank at either end of the pipeline
    and the bytes that it holds beside state when it holds most."""

    method: Values
    ends: tuple[tuple[Parameters, int], ...]


class Weights:
    """Bytes of many sets of layouts."""

    def __init__(self, spec: Spec) -> None:
        self.reserve = int(spec.budget.reserve_bytes)
        self._layers: dict[Any, list[Layers]] = {}
        self._each: dict[Any, tuple[int, ...]] = {}
        self._flight: dict[Any, tuple[int, ...]] = {}
        self._kept: dict[Any, int] = {}
        self._largest: dict[Any, int] = {}
        self._inside: dict[Any, int] = {}
        self._kinds: dict[Any, tuple[int, ...]] = {}

    # ── Activations ───────────────────────────────────────────────────────────

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
            kinds = self._alike(grid, work)
            each = {
                kind: min(
                    sum([part.value_bytes for part in layers.counts(first[kind])])
                    + _spared(layers, first[kind])
                    for layers in self._layers[at]
                )
                for kind in dict.fromkeys(kinds)
            }
            found = self._each[key] = tuple([each[kind] for kind in kinds])
        return found

    def _alike(self, grid: Grid, work: Work) -> tuple[int, ...]:
        """For each chunk of rank 0 the first that keeps as much."""
        first, options = grid.line.first, work.recompute.options
        placed = any(value is not None for value in options.values())
        key = (first, placed)
        if key not in self._kinds:
            model = grid.spec.model
            assert model is not None
            known = [_layers(chunk, model, placed=placed) for chunk in first]
            self._kinds[key] = tuple([known.index(each) for each in known])
        return self._kinds[key]

    def _held(self, grid: Grid, m: int) -> tuple[int, ...]:
        """Microbatches of each chunk of rank 0 that are held at one moment.

        At the moment of most chunks, whatever they weigh: no more than at that of most bytes.
        """
        schedule, pp, chunks = grid.line.schedule, grid.line.pp, len(grid.line.first)
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

    # ── State ─────────────────────────────────────────────────────────────────

    def state(self, grid: Grid, zero: int, shards: Shards, held: Parameters | None = None) -> int:
        """State of a rank, by default rank 0, under a ZeRO stage, and the budget's reserve."""
        held = grid.held if held is None else held
        key = (held, zero, shards)
        if key not in self._kept:
            spec = replace(grid.spec, parallel=zeroed(grid.spec.parallel, zero))
            lines = kept(spec, held, shards).lines
            self._kept[key] = sum(line.value_bytes for line in lines) + self.reserve
        return self._kept[key]

    def least_state(self, grid: Grid) -> int:
        """The least state of rank 0 on a grid: every ZeRO stage over as many ranks as it can."""
        return min([self.state(grid, *each) for each in self.widest(grid)])

    def widest(self, grid: Grid) -> list[tuple[int, Shards]]:
        """Every kind of state that may be chosen, a ZeRO stage over more ranks than one or not,
        with as many ranks as it can have."""
        parallel, experts = grid.spec.parallel, grid.spec.parallel.ep * grid.spec.parallel.etp
        held = parallel.tp * parallel.dp * parallel.cp // experts or 1
        return [(zero, Shards(ranks, held)) for (zero, _), ranks in grid.stem.zeros.items()]

    def floors(self, core: Core, zero: int, shards: Shards) -> tuple[Floor, ...]:
        """What the ends of the pipeline hold of a core beside state, by method.

        With state cut over fewer ranks, though over more than one, it is no less.
        """
        grid, found = core.grid, []
        spec = worked(grid.spec, core.work)
        last = grid.line.pp - 1
        for method in grid.stem.lists["method"].ways:
            chosen = method.get("parallel.cp_method", spec.parallel.cp_method)
            parallel = replace(zeroed(spec.parallel, zero), cp_method=chosen)
            book = Book(replace(spec, parallel=parallel), grid.line.layout)
            book.shards = shards
            ends = []
            for stage in dict.fromkeys((0, last)):
                one = book.of_stage(stage)
                ends.append((one.held, one.peak_bytes - self.state(grid, zero, shards, one.held)))
            found.append(Floor(method, tuple(ends)))
        return tuple(found)

    def above(self, grid: Grid, floor: Floor, zero: int, shards: Shards) -> int:
        """The peak of the ends of the pipeline with state that is cut so."""
        return max([rest + self.state(grid, zero, shards, held) for held, rest in floor.ends])


def _methods(grid: Grid, work: Work) -> Iterator[Spec]:
    """The job with a work under every method of context parallelism that may be chosen."""
    spec = worked(grid.spec, work)
    for method in grid.stem.lists["method"].ways:
        chosen = method.get("parallel.cp_method", spec.parallel.cp_method)
        yield replace(spec, parallel=replace(spec.parallel, cp_method=chosen))


def _layers(chunk: Stage, model: Model, *, placed: bool) -> tuple[int, ...]:
    """How many layers of each kind a chunk has, its first where that says what is kept, and whether
    it has the embedding."""
    number, first, experts = chunk.last + 1 - chunk.first, chunk.first, model.experts
    mixed = 0
    if experts is not None:
        mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(first)
    return (number, mixed, first if placed else 0, int(chunk.embedding))


def _spared(layers: Layers, chunk: Stage) -> int:
    """Less than its layers that a chunk keeps of one microbatch: nothing, but under adapters."""
    if layers.sizes.train.lora is None or not chunk.embedding:
        return 0
    return sum(line.value_bytes for line in unasked(layers.sizes, 1))
