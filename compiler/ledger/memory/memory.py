"""Memory of every rank class: what is held at each moment of a step, and the peak over them."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.memory import ends, sharded, states, temporaries
from parlay.compiler.ledger.memory.chunk import Count, LayerKept, Layers
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.ledger.memory.record import Line, Moment, RankClass
from parlay.compiler.ledger.memory.sizes import Sizes, sizes_of
from parlay.compiler.ledger.memory.stack import workspace
from parlay.compiler.ledger.parameters import Parameters, layer_parameters, stage_parameters
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
        book = _Book(spec, layout)
        classes = tuple(book.rank_class(stage) for stage in range(spec.parallel.pp))
        kept = max(book.kept.values(), key=lambda each: each.host_bytes + each.disk_bytes)
        layers = book.kinds()
    gpus = cluster.node.gpus
    return Memory(classes, layers, budget, kept.host_bytes * gpus, kept.disk_bytes * gpus)


def _states_alone(spec: Spec, layout: Layout) -> tuple[tuple[RankClass, ...], states.Kept]:
    model, parallel = spec.model, spec.parallel
    assert model is not None
    shards = states.shards_of(layout)
    reserve = _reserve(spec)
    if layout.stages:
        held = [_held(spec, layout, stage) for stage in range(parallel.pp)]
    else:
        assert model.params is not None
        held = [Parameters(round(model.params / (parallel.tp * parallel.pp)))]
    kept = [states.kept(spec, each, shards) for each in held]
    copies = 2 if parallel.schedule.name == "dualpipe" and not layout.stages else 1
    ranks = layout.world // len(kept)
    classes = tuple(
        RankClass(
            stage,
            ranks,
            held[stage],
            (),
            (Moment.of("training state", each.lines * copies, reserve),),
        )
        for stage, each in enumerate(kept)
    )
    return classes, max(kept, key=lambda each: each.host_bytes + each.disk_bytes)


def _reserve(spec: Spec) -> tuple[Line, ...]:
    value = spec.budget.reserve_bytes
    return (Line("reserve", "reserve of the budget", value, str(value), "budget.reserve"),)


def _held(spec: Spec, layout: Layout, stage: int) -> Parameters:
    held = Parameters()
    for chunk in layout.stages:
        if chunk.stage == stage:
            held += _of_chunk(spec, chunk)
    return held


def _of_chunk(spec: Spec, chunk: Stage) -> Parameters:
    assert spec.model is not None
    parallel = spec.parallel
    return stage_parameters(
        spec.model,
        range(chunk.first, chunk.last + 1),
        embedding=chunk.embedding,
        head=chunk.head,
        tp=parallel.tp,
        etp=parallel.etp,
        ep=parallel.ep,
        vocab_rows=padded_vocab(spec),
    )


class _Book:
    """One account: each kind of layer, chunk and state is worked out once."""

    def __init__(self, spec: Spec, layout: Layout) -> None:
        self.spec, self.layout = spec, layout
        self.sizes: Sizes = sizes_of(spec)
        self.layers = Layers(self.sizes)
        self.shards = states.shards_of(layout)
        self.each = states.each_parameter(spec)
        self.kept: dict[Parameters, states.Kept] = {}
        self.chunks: dict[tuple[int, int, bool, bool], Parameters] = {}
        self.counts: dict[tuple[int, int, int], tuple[Count, ...]] = {}
        self.used: dict[bool, LayerKept] = {}
        self.largest: dict[bool, Parameters] = {}
        train = spec.train
        assert train is not None
        self.microbatches = train.global_batch // (train.micro_batch * spec.parallel.dp)

    def kinds(self) -> tuple[LayerKept, ...]:
        """The kinds of layers that were met."""
        return tuple(self.used.values())

    # ── One rank class ────────────────────────────────────────────────────────

    def rank_class(self, stage: int) -> RankClass:
        """What the ranks of pipeline rank `stage` hold, moment by moment."""
        spec, sizes = self.spec, self.sizes
        chunks = sorted((c for c in self.layout.stages if c.stage == stage), key=lambda c: c.chunk)
        held = Parameters()
        for chunk in chunks:
            held += self.held(chunk)
        if held not in self.kept:
            self.kept[held] = states.kept(spec, held, self.shards)
        counts = [self.count(chunk) for chunk in chunks]
        one = [sum(map(_one, parts)) for parts in counts]
        flight = in_flight(
            spec.parallel.schedule,
            pp=spec.parallel.pp,
            microbatches=self.microbatches,
            stage=stage,
            weights=one,
        )
        always = (*self.kept[held].lines, *self.always())
        head = next((i for i, chunk in enumerate(chunks) if chunk.head), None)
        activations = tuple(
            line
            for chunk, parts, number in zip(chunks, counts, flight, strict=True)
            for line in (
                *(_activations(part, chunk, number, len(chunks)) for part in parts),
                *ends.end_lines(self.layers, chunk, number),
            )
        )
        running = (*temporaries.attention_lines(sizes), *temporaries.dispatch_lines(sizes))
        layer, end = self.biggest(counts), self.end(chunks)
        gathered = sharded.gathered_lines(spec, layer=layer.total, end=end, width=sizes.width)
        unreduced = sharded.unreduced_lines(spec, layer=layer.total, each=self.each.gradients)
        moments: list[Moment] = []
        saved: tuple[Line, ...] = ()
        if head is not None:
            saved, transient = ends.loss_lines(sizes, max(1, flight[head]))
            moments.append(
                Moment.of("loss", always, activations, saved, transient, gathered, self.scratch())
            )
        costliest = max(
            (part.layer for parts in counts for part in parts), key=lambda each: each.whole_bytes
        )
        backward = temporaries.backward_lines(sizes, costliest, self.weight(costliest))
        waiting = saved if head is not None and flight[head] > 1 else ()
        moments.append(
            Moment.of(
                "backward", always, activations, waiting, backward, running, gathered, unreduced
            )
        )
        update = tuple(states.update_lines(spec, held, self.shards, sizes.stack))
        moments.append(Moment.of("optimizer step", always, update))
        return RankClass(stage, self.layout.world // spec.parallel.pp, held, flight, tuple(moments))

    # ── Parts ─────────────────────────────────────────────────────────────────

    def always(self) -> tuple[Line, ...]:
        """Reserve of the budget and workspaces of libraries."""
        assert self.spec.cluster is not None
        unfused = self.sizes.train.attention == "math"
        value = workspace(self.sizes.stack, self.spec.cluster.node.gpu, unfused=unfused)
        source = self.sizes.stack.source
        return (*_reserve(self.spec), Line("buffers", "workspaces", value, str(value), source))

    def scratch(self) -> tuple[Line, ...]:
        """What lies around the loss, by stack."""
        value, formula = self.sizes.stream(self.sizes.stack.scratch)
        source = self.sizes.stack.source
        return (Line("temporaries", "around the loss", value, formula, source),)

    def held(self, chunk: Stage) -> Parameters:
        """The parameters of a chunk on one rank."""
        assert self.spec.model is not None
        experts = self.spec.model.experts
        mixed = 0
        if experts is not None:
            mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
        key = (chunk.layers, mixed, chunk.embedding, chunk.head)
        if key not in self.chunks:
            self.chunks[key] = _of_chunk(self.spec, chunk)
        return self.chunks[key]

    def count(self, chunk: Stage) -> tuple[Count, ...]:
        """The layers of a chunk by kind."""
        counts = self.layers.counts(chunk)
        for part in counts:
            self.used.setdefault(part.layer.experts, part.layer)
        return counts

    def biggest(self, counts: list[tuple[Count, ...]]) -> Parameters:
        """The parameters of the largest layer of the chunks, on one rank."""
        kinds = {part.layer.experts for parts in counts for part in parts if part.layers}
        return max((self.of_layer(kind) for kind in kinds), key=lambda each: each.total)

    def of_layer(self, experts: bool) -> Parameters:
        """The parameters of one layer of a kind, on one rank."""
        if experts not in self.largest:
            model, parallel = self.spec.model, self.spec.parallel
            assert model is not None
            index = 0
            if model.experts is not None and experts:
                index = model.experts.dense_layers + model.experts.every - 1
            self.largest[experts] = layer_parameters(
                model, index, tp=parallel.tp, etp=parallel.etp, ep=parallel.ep
            )
        return self.largest[experts]

    def end(self, chunks: list[Stage]) -> int:
        """The parameters of embedding or head on one rank, where a chunk has one."""
        if not any(chunk.embedding or chunk.head for chunk in chunks):
            return 0
        return self.sizes.vocab * self.sizes.model.hidden

    def weight(self, kept: LayerKept) -> int:
        """The parameters of the largest single weight of a layer, on one rank."""
        model, parallel = self.sizes.model, self.spec.parallel
        experts = model.experts
        if kept.experts and experts is not None:
            local = -(-experts.count // parallel.ep)
            return model.hidden * -(-experts.ffn // parallel.etp) * local
        return model.hidden * max(-(-model.ffn // parallel.tp), self.sizes.heads * model.head_dim)


def _one(part: Count) -> int:
    """Bytes of one microbatch in the layers of one kind."""
    kept = part.layer
    return part.again * kept.input_bytes + (part.layers - part.again) * kept.kept_bytes


def _activations(part: Count, chunk: Stage, in_flight: int, chunks: int) -> Line:
    kept, plain = part.layer, part.layers - part.again
    terms = [
        f"{layers} x {each}"
        for layers, each in ((plain, kept.kept_bytes), (part.again, kept.input_bytes))
        if layers
    ]
    formula = " + ".join(terms)
    if in_flight != 1:
        formula = f"{in_flight} microbatches x ({formula})"
    name = f"{part.layers} {'expert' if kept.experts else 'dense'} layers"
    if chunks > 1:
        name += f" of chunk {chunk.chunk}"
    return Line("activations", name, in_flight * _one(part), formula, "the layer's saved tensors")
