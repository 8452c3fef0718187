"""Memory of every rank class: what is held at each moment of a step, and the peak over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.memory import states
from parlay.compiler.ledger.memory.book import Book, parameters_of, reserve
from parlay.compiler.ledger.memory.chunk import LayerKept
from parlay.compiler.ledger.memory.record import Moment, Part, RankClass
from parlay.compiler.ledger.parameters import Parameters
from parlay.compiler.spec.blocks import Spec


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory ledger of a layout.

    `budget_bytes` is the share of the GPU that may be planned; peaks have the budget's reserve
    among them. `layers` are the kinds of layers, in order of first use.
    """

    classes: tuple[RankClass, ...]
    layers: tuple[LayerKept, ...]
    budget_bytes: int
    host_bytes_per_node: int
    disk_bytes_per_node: int

    @property
    def worst(self) -> RankClass:
        """The class with the highest peak."""
        return max(self.classes, key=lambda each: each.peak_bytes)


def peak(spec: Spec, layout: Layout) -> RankClass:
    """The fullest rank class; its `peak_bytes` include the budget's reserve."""
    return account(spec, layout).worst


def memory(spec: Spec, layout: Layout) -> tuple[RankClass, ...]:
    """The rank class of each pipeline stage."""
    return account(spec, layout).classes


def account(spec: Spec, layout: Layout) -> Memory:
    """The memory of every rank class; states alone where the model has no shape or no recipe.

    A model given by `params` is split evenly over tp and pp, and is one class.
    """
    cluster = spec.cluster
    assert cluster is not None and spec.model is not None
    budget = int(spec.budget.memory * cluster.node.gpu.memory_bytes)
    if not layout.stages or spec.train is None:
        classes, kept = _states_alone(spec, layout)
        layers: tuple[LayerKept, ...] = ()
    else:
        book = Book(spec, layout)
        classes = book.classes()
        kept = max(book.kept.values(), key=lambda each: each.host_bytes + each.disk_bytes)
        layers = book.kinds()
    gpus = cluster.node.gpus
    return Memory(classes, layers, budget, kept.host_bytes * gpus, kept.disk_bytes * gpus)


def _states_alone(spec: Spec, layout: Layout) -> tuple[tuple[RankClass, ...], states.Kept]:
    model, parallel = spec.model, spec.parallel
    assert model is not None
    shards = states.shards_of(layout)
    spare = reserve(spec)
    if layout.stages:
        held = [_held(spec, layout, stage) for stage in range(parallel.pp)]
    else:
        assert model.params is not None
        held = [Parameters(round(model.params / (parallel.tp * parallel.pp)))]
    kept = [states.kept(spec, each, shards) for each in held]
    copies = 2 if parallel.schedule.name == "dualpipe" and not layout.stages else 1
    ranks = layout.world // len(kept)
    moments = [Moment.of("training state", Part.of(each.lines * copies, spare)) for each in kept]
    classes = tuple(
        RankClass(stage, ranks, held[stage], (), each.value_bytes, partial(iter, (each,)))
        for stage, each in enumerate(moments)
    )
    return classes, max(kept, key=lambda each: each.host_bytes + each.disk_bytes)


def _held(spec: Spec, layout: Layout, stage: int) -> Parameters:
    held = Parameters()
    for chunk in layout.stages:
        if chunk.stage == stage:
            held += parameters_of(spec, chunk)
    return held
