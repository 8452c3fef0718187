"""The account of one job, each kind of layer, chunk and state worked out once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from operator import mul
from typing import Final

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.memory import (
    backward,
    ends,
    late,
    libraries,
    sharded,
    states,
    temporaries,
)
from parlay.compiler.ledger.memory.chunk import LayerKept, Layers
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.ledger.memory.holding import Holding, InFlight, Kept, activation_lines
from parlay.compiler.ledger.memory.put_off import PutOff
from parlay.compiler.ledger.memory.record import Held, Line, Moment, Part, RankClass
from parlay.compiler.ledger.memory.sizes import Sizes, sizes_of
from parlay.compiler.ledger.parameters import Parameters, layer_parameters, stage_parameters
from parlay.compiler.spec.blocks import Spec

Lines = tuple[Line, ...]
NOTHING: Final = Part((), 0)


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
        copied=chunk.copies_embedding,
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
        self.chunks: dict[tuple[object, ...], Kept] = {}
        self.holdings: dict[tuple[object, ...], Holding] = {}
        self.always: dict[Parameters, tuple[Part, Moment]] = {}
        self.inside: dict[tuple[bool, bool], Part] = {}
        self.beside: dict[tuple[object, ...], tuple[sharded.Passing, Part]] = {}
        self.used: dict[bool, LayerKept] = {}
        self.largest: dict[bool, Parameters] = {}
        train = spec.train
        assert train is not None
        self.microbatches = train.global_batch // (train.micro_batch * spec.parallel.dp)
        self.ranks = layout.world // spec.parallel.pp
        recompute = train.recompute
        # Which layers with experts are computed again hangs on where a chunk begins.
        self.placed = not self.alike and recompute.name == "full" and bool(recompute.options)
        self.splits = late.splits(self.sizes)

    def kinds(self) -> tuple[LayerKept, ...]:
        """The kinds of layers that were met."""
        return tuple(self.used.values())

    # ── Rank classes ──────────────────────────────────────────────────────────

    def classes(self) -> tuple[RankClass, ...]:
        """What the ranks of each pipeline stage hold."""
        rows, found = self.layout.rows, list[RankClass | None]([None] * self.spec.parallel.pp)
        alike = ((rank,) for rank in range(len(rows))) if self.placed else self.layout.alike
        for ranks in alike:
            one = self.holding(ranks[0])
            for stage in ranks:
                found[stage] = self.rank_class(one, stage)
        return tuple([each for each in found if each is not None])

    def of_stage(self, stage: int) -> RankClass:
        """What the ranks of one pipeline stage hold."""
        return self.rank_class(self.holding(stage), stage)

    def rank_class(self, one: Holding, stage: int) -> RankClass:
        """What the ranks of pipeline rank `stage` hold; moments are made when they are asked for,
        where their bytes are known without."""
        parallel = self.spec.parallel
        flight = in_flight(
            parallel.schedule,
            pp=parallel.pp,
            microbatches=self.microbatches,
            stage=stage,
            weights=one.weights,
        )
        if self.splits:
            most, made = late.peak(self, one, stage), partial(late.moments, self, one, stage)
        elif one.ends:
            moments = tuple(self.outer(one, flight))
            most, made = max([moment.value_bytes for moment in moments]), partial(iter, moments)
        else:
            most = one.always.value_bytes + self.flying(one, flight) + one.behind.value_bytes
            most, made = max(most, one.update.value_bytes), partial(self.inner, one, flight)
        return RankClass(stage, self.ranks, one.held, flight, most, made)

    def inner(self, one: Holding, flight: tuple[int, ...]) -> Iterator[Moment]:
        """The moments of a step without embedding and head."""
        kept = self.activations(one, flight)
        yield Moment.of("backward", one.always, kept, one.behind)
        yield one.update

    def flying(self, one: Holding, flight: tuple[int, ...]) -> int:
        """Bytes of `activations`."""
        if self.sizes.stack.libraries:
            return self.activations(one, flight).value_bytes
        return sum(map(mul, flight, [each.each_bytes for each in one.kept]))

    def outer(self, one: Holding, flight: tuple[int, ...]) -> Iterator[Moment]:
        """The moments of a step with embedding or head."""
        sizes, always, chunks = self.sizes, one.always, one.chunks
        received = self.received if one.receives else ()
        activations = self.activations(one, flight)
        head = next((i for i, chunk in enumerate(chunks) if chunk.head), None)
        first = next((i for i, chunk in enumerate(chunks) if chunk.embedding), None)
        tied = first is not None and head is not None and sizes.model.tied_embeddings
        heads = head is not None and not tied
        again = not tied or sizes.model.embedding_norm
        end = sizes.vocab * sizes.model.hidden
        passed, running = self.passing(one.kept, end, one.receives, head=heads, again=again)
        beside, rest = NOTHING, activations
        if head is not None:
            saved, transient = ends.loss_lines(sizes, max(1, flight[head]))
            beside = Part.of(saved if flight[head] > 1 else ())
            now = Part.of(saved, transient, passed.loss, received)
            yield Moment.of("loss", always, activations, now)
            if sizes.stack.traced:
                others = ends.loss_lines(sizes, flight[head] - 1)[0] if flight[head] > 1 else ()
                now = Part.of(others, backward.head(sizes), passed.head, received)
                yield Moment.of("backward of the head", always, activations, now)
            if tied:
                beside = Part.of(beside.lines, backward.tied(sizes))
            # Where one chunk is all there is, its backward has the head behind it.
            if len(chunks) == 1:
                rest = self.activations(one, flight, before_layers=False)
        yield Moment.of("backward", always, rest, beside, self.backward(one.kept), running)
        if first is not None and sizes.stack.traced:
            left = [number - (place == first) for place, number in enumerate(flight)]
            rest = self.activations(one, tuple(left))
            now = Part.of(backward.embedding(sizes), passed.embedding)
            yield Moment.of("backward of the embedding", always, rest, beside, now)
        yield one.update

    def holding(self, stage: int) -> Holding:
        """What ranks of a stage hold, whatever is in flight."""
        chunks = self.layout.rows[stage]
        receives = stage > 0 or len(chunks) > 1
        known = (receives, *map(self.same, chunks))
        if known not in self.holdings:
            self.holdings[known] = self.holds(chunks, receives)
        return self.holdings[known]

    def holds(self, chunks: tuple[Stage, ...], receives: bool) -> Holding:
        """What ranks of these chunks hold, whatever is in flight."""
        kept = tuple([self.chunk(chunk) for chunk in chunks])
        held = kept[0].held
        for each in kept[1:]:
            held += each.held
        always, update = self.states(held, chunks)
        with_ends = any(chunk.embedding or chunk.head for chunk in chunks)
        behind = NOTHING
        if not with_ends and not self.splits:
            _, running = self.passing(kept, 0, receives, head=False, again=True)
            behind = self.backward(kept).beside(running)
        return Holding(
            chunks=chunks,
            kept=kept,
            weights=tuple([each.value_bytes for each in kept]),
            held=held,
            always=always,
            update=update,
            behind=behind,
            receives=receives,
            ends=with_ends,
            late=[],
        )

    # ── Parts, each worked out once ───────────────────────────────────────────

    def states(self, held: Parameters, chunks: Sequence[Stage]) -> tuple[Part, Moment]:
        """What a rank that holds `held` has at all times, and the moment of its update."""
        if held not in self.kept:
            kept = states.kept(self.spec, held, self.shards, self.each)
            adapters = states.adapter_lines(self.spec, chunks, self.shards)
            always = Part.of(kept.lines, adapters, self.fixed)
            update = states.update_lines(self.spec, held, self.shards, self.sizes.stack)
            self.kept[held] = kept
            self.always[held] = always, Moment.of("optimizer step", always, Part.of(update))
        return self.always[held]

    def passing(
        self, kept: Sequence[Kept], end: int, receives: bool, *, head: bool, again: bool
    ) -> tuple[sharded.Passing, Part]:
        """What sharding makes whole for a while, and all that runs beside a layer's backward."""
        layer = self.biggest(kept).total
        key = (layer, end, receives, head, again)
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
            received = self.received if receives else ()
            self.beside[key] = passed, Part.of(received, self.running, passed.layers)
        return self.beside[key]

    def backward(self, kept: Sequence[Kept], *, put_off: bool = False) -> Part:
        """What the backward of the layer that saves most holds while it runs, or its first half
        where weight gradients are put off."""
        layer = self.costliest(kept)
        asked = (layer.experts, put_off)
        if asked not in self.inside:
            weight = self.weight(layer)
            lines = temporaries.backward_lines(self.sizes, layer, weight, put_off=put_off)
            self.inside[asked] = Part.of(lines)
        return self.inside[asked]

    def activations(
        self, one: Holding, flight: tuple[int, ...], *, before_layers: bool = True
    ) -> Held:
        """What all chunks keep of the microbatches in flight."""
        stack = self.sizes.stack
        if before_layers and not stack.libraries:
            return InFlight(self.layers, one.chunks, one.kept, flight)
        layers = sum(max(0, n) * kept.layers for n, kept in zip(flight, one.kept, strict=True))
        lines = activation_lines(
            self.layers, one.chunks, one.kept, flight, before_layers=before_layers
        )
        return Part.of(lines, libraries.rounding(stack, layers))

    @cached_property
    def put_off(self) -> PutOff:
        """What a split backward leaves, alike on all stages."""
        return PutOff.of(self.sizes)

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

    def same(self, chunk: Stage) -> tuple[object, ...]:
        """What two chunks have in common that hold and keep alike."""
        _, _, first, last, *alone = chunk
        if self.alike:
            return (last - first, *alone)
        experts = self.sizes.model.experts
        assert experts is not None
        mixed = experts.layers_before(last + 1) - experts.layers_before(first)
        return (last - first, mixed, first if self.placed else 0, *alone)

    def chunk(self, chunk: Stage) -> Kept:
        """What a chunk holds and keeps."""
        key = self.same(chunk)
        if key not in self.chunks:
            counts = self.layers.counts(chunk)
            for part in counts:
                self.used.setdefault(part.layer.experts, part.layer)
            lines = ends.end_lines(self.layers, chunk, 1)
            self.chunks[key] = Kept.of(parameters_of(self.spec, chunk), counts, lines)
        return self.chunks[key]

    def costliest(self, kept: Sequence[Kept]) -> LayerKept:
        """The layer that saves most."""
        if self.alike:
            return self.layers.dense
        kinds = [part.layer for each in kept for part in each.counts]
        return max(kinds, key=lambda each: each.whole_bytes)

    def biggest(self, kept: Sequence[Kept]) -> Parameters:
        """The parameters of the largest layer of the chunks, on one rank."""
        if self.alike:
            return self.of_layer(experts=False)
        kinds = {part.layer.experts for each in kept for part in each.counts if part.layers}
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

    def weight(self, kept: LayerKept) -> int:
        """The parameters of the largest single weight of a layer, on one rank."""
        model, parallel = self.sizes.model, self.spec.parallel
        experts = model.experts
        if kept.experts and experts is not None:
            local = -(-experts.count // parallel.ep)
            return model.hidden * -(-experts.ffn // parallel.etp) * local
        return model.hidden * max(-(-model.ffn // parallel.tp), self.sizes.heads * model.head_dim)
