"""The account of one job, each kind of layer, chunk and state worked out once."""

from __future__ import annotations

from functools import cached_property

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.memory import (
    backward,
    ends,
    libraries,
    sharded,
    states,
    temporaries,
)
from parlay.compiler.ledger.memory.chunk import Count, LayerKept, Layers
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.ledger.memory.record import Line, Moment, Part, RankClass
from parlay.compiler.ledger.memory.sizes import Sizes, sizes_of
from parlay.compiler.ledger.parameters import Parameters, layer_parameters, stage_parameters
from parlay.compiler.spec.blocks import Spec

Lines = tuple[Line, ...]


def reserve(spec: Spec) -> Lines:
    """The budget's reserve, held at every moment."""
    value = spec.budget.reserve_bytes
    return (Line("reserve", "reserve of the budget", value, str(value), "budget.reserve"),)


def parameters_of(spec: Spec, chunk: Stage) -> Parameters:
    """The parameters of a chunk on one rank."""
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


class Book:
    """One account: each kind of layer, chunk and state is worked out once."""

    def __init__(self, spec: Spec, layout: Layout) -> None:
        self.spec, self.layout = spec, layout
        self.sizes: Sizes = sizes_of(spec)
        self.layers = Layers(self.sizes)
        self.alike = self.sizes.model.experts is None  # every layer
        self.shards = states.shards_of(layout)
        self.each = states.each_parameter(spec)
        self.kept: dict[Parameters, states.Kept] = {}
        self.chunks: dict[tuple[int, int, bool, bool], Parameters] = {}
        self.by_stage: list[list[Stage]] = [[] for _ in range(spec.parallel.pp)]
        for chunk in sorted(layout.stages, key=lambda chunk: chunk.chunk):
            self.by_stage[chunk.stage].append(chunk)
        self.always: dict[Parameters, tuple[Part, Part]] = {}
        self.counts: dict[int, tuple[Count, ...]] = {}
        self.inside: dict[bool, Part] = {}
        self.beside: dict[tuple[int, int, bool, bool, bool], tuple[sharded.Passing, Part]] = {}
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
        chunks = self.by_stage[stage]
        held = Parameters()
        for chunk in chunks:
            held += self.held(chunk)
        always, update = self.states(held)
        counts = [self.count(chunk) for chunk in chunks]
        one = [sum(part.value_bytes for part in parts) for parts in counts]
        flight = in_flight(
            spec.parallel.schedule,
            pp=spec.parallel.pp,
            microbatches=self.microbatches,
            stage=stage,
            weights=one,
        )
        activations = self.activations(chunks, counts, flight)
        received = self.received if stage or len(chunks) > 1 else ()
        moments: list[Moment] = []
        waiting: Lines = ()
        head = next((i for i, chunk in enumerate(chunks) if chunk.head), None)
        first = next((i for i, chunk in enumerate(chunks) if chunk.embedding), None)
        tied = first is not None and head is not None and sizes.model.tied_embeddings
        heads = head is not None and not tied
        again = not tied or sizes.model.embedding_norm
        passed, running = self.passing(counts, self.end(chunks), received, head=heads, again=again)
        if head is not None:
            saved, transient = ends.loss_lines(sizes, max(1, flight[head]))
            waiting = saved if flight[head] > 1 else ()
            now = Part.of(saved, transient, passed.loss, received)
            moments.append(Moment.of("loss", always, activations, now))
            if sizes.stack.traced:
                others = ends.loss_lines(sizes, flight[head] - 1)[0] if flight[head] > 1 else ()
                now = Part.of(others, backward.head(sizes), passed.head, received)
                moments.append(Moment.of("backward of the head", always, activations, now))
        ends_held = backward.tied(sizes) if tied else ()
        beside = Part.of(waiting, ends_held)
        inside = self.backward(self.costliest(counts))
        # Where one chunk is all there is, its backward has the head behind it.
        rest = activations
        if head is not None and len(chunks) == 1:
            rest = self.activations(chunks, counts, flight, before_layers=False)
        moments.append(Moment.of("backward", always, rest, beside, inside, running))
        if first is not None and sizes.stack.traced:
            left = [number - (place == first) for place, number in enumerate(flight)]
            rest = self.activations(chunks, counts, tuple(left))
            now = Part.of(backward.embedding(sizes), passed.embedding)
            moments.append(Moment.of("backward of the embedding", always, rest, beside, now))
        moments.append(Moment.of("optimizer step", always, update))
        return RankClass(stage, self.layout.world // spec.parallel.pp, held, flight, tuple(moments))

    # ── Parts, each worked out once ───────────────────────────────────────────

    def states(self, held: Parameters) -> tuple[Part, Part]:
        """What a rank that holds `held` has at all times, and what its update takes besides."""
        if held not in self.kept:
            kept = states.kept(self.spec, held, self.shards)
            update = states.update_lines(self.spec, held, self.shards, self.sizes.stack)
            self.kept[held] = kept
            self.always[held] = Part.of(kept.lines, self.fixed), Part.of(update)
        return self.always[held]

    def passing(
        self,
        counts: list[tuple[Count, ...]],
        end: int,
        received: Lines,
        *,
        head: bool,
        again: bool,
    ) -> tuple[sharded.Passing, Part]:
        """What sharding makes whole for a while, and all that runs beside a layer's backward."""
        layer = self.biggest(counts).total
        key = (layer, end, bool(received), head, again)
        if key not in self.beside:
            passed = sharded.Passed(
                zero=self.spec.parallel.zero,
                layer=layer,
                end=end,
                head=end if head else 0,
                again=again,
                width=self.sizes.width,
                each=self.each.gradients,
                ranks=self.shards.dense,
            ).passing(traced=self.sizes.stack.traced)
            self.beside[key] = passed, Part.of(received, self.running, passed.layers)
        return self.beside[key]

    def backward(self, layer: LayerKept) -> Part:
        """What the backward of a layer holds while it runs."""
        if layer.experts not in self.inside:
            lines = temporaries.backward_lines(self.sizes, layer, self.weight(layer))
            self.inside[layer.experts] = Part.of(lines)
        return self.inside[layer.experts]

    def activations(
        self,
        chunks: list[Stage],
        counts: list[tuple[Count, ...]],
        flight: tuple[int, ...],
        *,
        before_layers: bool = True,
    ) -> Part:
        """What all chunks keep of the microbatches in flight."""
        lines: list[Line] = []
        kept = 0
        for chunk, parts, number in zip(chunks, counts, flight, strict=True):
            if number > 0:
                for part in parts:
                    lines.append(_activations(part, chunk, number, len(chunks)))
                lines += ends.end_lines(self.layers, chunk, number, before_layers=before_layers)
                kept += number * sum(part.layers - part.again for part in parts)
        return Part.of(lines, libraries.rounding(self.sizes.stack, kept))

    @cached_property
    def running(self) -> Lines:
        """What attention and experts hold while they run."""
        sizes = self.sizes
        return (*temporaries.attention_lines(sizes), *temporaries.dispatch_lines(sizes))

    @cached_property
    def received(self) -> Lines:
        """What lies in the buffer between two stages."""
        return ends.messages(self.sizes)

    @cached_property
    def fixed(self) -> Lines:
        """Reserve of the budget and what libraries hold."""
        assert self.spec.cluster is not None
        held = libraries.lines(self.sizes, self.spec.cluster.node.gpu)
        return (*reserve(self.spec), *held)

    def held(self, chunk: Stage) -> Parameters:
        """The parameters of a chunk on one rank."""
        assert self.spec.model is not None
        experts = self.spec.model.experts
        mixed = 0
        if experts is not None:
            mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
        key = (chunk.layers, mixed, chunk.embedding, chunk.head)
        if key not in self.chunks:
            self.chunks[key] = parameters_of(self.spec, chunk)
        return self.chunks[key]

    def count(self, chunk: Stage) -> tuple[Count, ...]:
        """The layers of a chunk by kind; without experts they follow from how many there are."""
        if self.alike and chunk.layers in self.counts:
            return self.counts[chunk.layers]
        counts = self.layers.counts(chunk)
        for part in counts:
            self.used.setdefault(part.layer.experts, part.layer)
        if self.alike:
            self.counts[chunk.layers] = counts
        return counts

    def costliest(self, counts: list[tuple[Count, ...]]) -> LayerKept:
        """The layer that saves most."""
        if self.alike:
            return counts[0][0].layer
        kinds = [part.layer for parts in counts for part in parts]
        return max(kinds, key=lambda each: each.whole_bytes)

    def biggest(self, counts: list[tuple[Count, ...]]) -> Parameters:
        """The parameters of the largest layer of the chunks, on one rank."""
        if self.alike:
            return self.of_layer(experts=False)
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
    return Line(
        "activations", name, in_flight * part.value_bytes, formula, "the layer's saved tensors"
    )
