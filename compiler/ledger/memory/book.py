"""The account of one job, each kind of layer, chunk and state worked out once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

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
NOTHING: Final = Part((), 0)
ACTIVATIONS: Final = "activations"
SAVED: Final = "the layer's saved tensors"


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


class Kept(NamedTuple):
    """Chunks that hold alike: parameters on one rank, layers by kind, and of one microbatch what
    those keep (`value_bytes`), in words, and the layers of them that keep more than their input."""

    number: int
    held: Parameters
    counts: tuple[Count, ...]
    value_bytes: int
    words: tuple[tuple[str, str, int], ...]  # name, formula and bytes of each of `counts`
    layers: int
    ends: bool  # an embedding or a head


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
        self.chunks: dict[tuple[int, int, bool, bool, int], Kept] = {}
        self.by_stage: list[list[Stage]] = [[] for _ in range(spec.parallel.pp)]
        for chunk in sorted(layout.stages, key=lambda chunk: chunk.chunk):
            self.by_stage[chunk.stage].append(chunk)
        self.always: dict[Parameters, tuple[Part, Moment]] = {}
        self.moments: dict[tuple[object, ...], tuple[Moment, ...]] = {}
        self.ends: dict[tuple[bool, bool, int, bool], Lines] = {}
        self.inside: dict[bool, Part] = {}
        self.beside: dict[tuple[object, ...], tuple[sharded.Passing, Part]] = {}
        self.used: dict[bool, LayerKept] = {}
        self.largest: dict[bool, Parameters] = {}
        train = spec.train
        assert train is not None
        self.microbatches = train.global_batch // (train.micro_batch * spec.parallel.dp)
        self.ranks = layout.world // spec.parallel.pp
        self.layer_total = self.of_layer(experts=False).total if self.alike else 0
        recompute = train.recompute
        # Which layers with experts are computed again hangs on where a chunk begins.
        self.placed = not self.alike and recompute.name == "full" and bool(recompute.options)

    def kinds(self) -> tuple[LayerKept, ...]:
        """The kinds of layers that were met."""
        return tuple(self.used.values())

    # ── One rank class ────────────────────────────────────────────────────────

    def rank_class(self, stage: int) -> RankClass:
        """What the ranks of pipeline rank `stage` hold, moment by moment."""
        spec, chunks = self.spec, self.by_stage[stage]
        kept = [self.chunk(chunk) for chunk in chunks]
        held = kept[0].held
        for each in kept[1:]:
            held += each.held
        flight = in_flight(
            spec.parallel.schedule,
            pp=spec.parallel.pp,
            microbatches=self.microbatches,
            stage=stage,
            weights=tuple([each.value_bytes for each in kept]),
        )
        receives = stage > 0 or len(chunks) > 1
        known = (*[each.number for each in kept], flight, receives)
        if known not in self.moments:
            inner = not any(each.ends for each in kept)
            of_stage = self.inner if inner else self.outer
            self.moments[known] = tuple(of_stage(chunks, kept, held, flight, receives))
        return RankClass(stage, self.ranks, held, flight, self.moments[known])

    def inner(
        self,
        chunks: list[Stage],
        kept: list[Kept],
        held: Parameters,
        flight: tuple[int, ...],
        receives: bool,
    ) -> Iterator[Moment]:
        """The moments of a step without embedding and head."""
        always, update = self.states(held, chunks)
        _, running = self.passing(kept, 0, receives, head=False, again=True)
        activations = self.activations(chunks, kept, flight)
        yield Moment.of("backward", always, activations, self.backward(kept), running)
        yield update

    def outer(
        self,
        chunks: list[Stage],
        kept: list[Kept],
        held: Parameters,
        flight: tuple[int, ...],
        receives: bool,
    ) -> Iterator[Moment]:
        """The moments of a step with embedding or head."""
        sizes = self.sizes
        always, update = self.states(held, chunks)
        received = self.received if receives else ()
        activations = self.activations(chunks, kept, flight)
        head = next((i for i, chunk in enumerate(chunks) if chunk.head), None)
        first = next((i for i, chunk in enumerate(chunks) if chunk.embedding), None)
        tied = first is not None and head is not None and sizes.model.tied_embeddings
        heads = head is not None and not tied
        again = not tied or sizes.model.embedding_norm
        end = sizes.vocab * sizes.model.hidden
        passed, running = self.passing(kept, end, receives, head=heads, again=again)
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
                rest = self.activations(chunks, kept, flight, before_layers=False)
        yield Moment.of("backward", always, rest, beside, self.backward(kept), running)
        if first is not None and sizes.stack.traced:
            left = [number - (place == first) for place, number in enumerate(flight)]
            rest = self.activations(chunks, kept, tuple(left))
            now = Part.of(backward.embedding(sizes), passed.embedding)
            yield Moment.of("backward of the embedding", always, rest, beside, now)
        yield update

    # ── Parts, each worked out once ───────────────────────────────────────────

    def states(self, held: Parameters, chunks: list[Stage]) -> tuple[Part, Moment]:
        """What a rank that holds `held` has at all times, and the moment of its update."""
        if held not in self.kept:
            kept = states.kept(self.spec, held, self.shards)
            more = states.adapter_lines(self.spec, chunks, self.shards)
            always = Part.of(kept.lines, more, self.fixed)
            update = states.update_lines(self.spec, held, self.shards, self.sizes.stack)
            self.kept[held] = kept
            self.always[held] = always, Moment.of("optimizer step", always, Part.of(update))
        return self.always[held]

    def passing(
        self, kept: list[Kept], end: int, receives: bool, *, head: bool, again: bool
    ) -> tuple[sharded.Passing, Part]:
        """What sharding makes whole for a while, and all that runs beside a layer's backward."""
        layer = self.layer_total or self.biggest(kept).total
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

    def backward(self, kept: list[Kept]) -> Part:
        """What the backward of the layer that saves most holds while it runs."""
        layer = self.costliest(kept)
        if layer.experts not in self.inside:
            lines = temporaries.backward_lines(self.sizes, layer, self.weight(layer))
            self.inside[layer.experts] = Part.of(lines)
        return self.inside[layer.experts]

    def activations(
        self,
        chunks: list[Stage],
        kept: list[Kept],
        flight: tuple[int, ...],
        *,
        before_layers: bool = True,
    ) -> Part:
        """What all chunks keep of the microbatches in flight."""
        lines: list[Line] = []
        value = layers = 0
        for chunk, each, number in zip(chunks, kept, flight, strict=True):
            if number <= 0:
                continue
            times = f"{number} microbatches x (" if number > 1 else ""
            of_chunk = f" of chunk {chunk.chunk}" if len(chunks) > 1 else ""
            for name, formula, one in each.words:
                if one:
                    words = f"{times}{formula})" if times else formula
                    lines.append(Line(ACTIVATIONS, name + of_chunk, number * one, words, SAVED))
            value += number * each.value_bytes
            layers += number * each.layers
            for line in self.end(chunk, number, before_layers):
                lines.append(line)
                value += line.value_bytes
        for line in libraries.rounding(self.sizes.stack, layers):
            lines.append(line)
            value += line.value_bytes
        return Part(tuple(lines), value)

    def end(self, chunk: Stage, number: int, before_layers: bool) -> Lines:
        """What the ends of a chunk keep of `number` microbatches."""
        asked = (chunk.embedding, chunk.head, number, before_layers)
        if asked not in self.ends:
            lines = ends.end_lines(self.layers, chunk, number, before_layers=before_layers)
            self.ends[asked] = tuple([line for line in lines if line.value_bytes])
        return self.ends[asked]

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

    def chunk(self, chunk: Stage) -> Kept:
        """What a chunk holds and keeps; all that differs is layers, experts and ends."""
        experts, mixed = self.sizes.model.experts, 0
        if experts is not None:
            mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
        first = chunk.first if self.placed else 0
        key = (chunk.layers, mixed, chunk.embedding, chunk.head, first)
        if key not in self.chunks:
            counts = self.layers.counts(chunk)
            for part in counts:
                self.used.setdefault(part.layer.experts, part.layer)
            self.chunks[key] = Kept(
                len(self.chunks),
                parameters_of(self.spec, chunk),
                counts,
                sum(part.value_bytes for part in counts),
                tuple(_words(part) for part in counts),
                sum(part.layers - part.again for part in counts),
                chunk.embedding or chunk.head,
            )
        return self.chunks[key]

    def costliest(self, kept: list[Kept]) -> LayerKept:
        """The layer that saves most."""
        if self.alike:
            return kept[0].counts[0].layer
        kinds = [part.layer for each in kept for part in each.counts]
        return max(kinds, key=lambda each: each.whole_bytes)

    def biggest(self, kept: list[Kept]) -> Parameters:
        """The parameters of the largest layer of the chunks, on one rank."""
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


def _words(part: Count) -> tuple[str, str, int]:
    """Name, formula and bytes of what layers keep of one microbatch."""
    kept = part.layer
    terms = [
        f"{layers} x {each}"
        for layers, each in (
            (part.layers - part.again, kept.kept_bytes),
            (part.again, kept.input_bytes),
        )
        if layers
    ]
    name = f"{part.layers} {'expert' if kept.experts else 'dense'} layers"
    return name, " + ".join(terms), part.value_bytes
