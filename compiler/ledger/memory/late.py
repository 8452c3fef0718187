"""The moments of a step whose backwards are split, in the emitted code.

The first half leaves for each linear its input and the gradient of its output (`runtime/
deferred.py`); all else that the forward saved is gone, and what is computed again for it is kept.
Inputs of columns are pieces of the sequence where that is cut, gradients of rows are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.layout.stages import SPLITTING
from parlay.compiler.ledger.memory import backward, ends
from parlay.compiler.ledger.memory.flight import Halves, halves
from parlay.compiler.ledger.memory.record import Line, Moment, Part
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.spec.blocks import GATED

if TYPE_CHECKING:
    from parlay.compiler.ledger.memory.book import Book
    from parlay.compiler.ledger.memory.holding import Holding

Lines = tuple[Line, ...]


def splits(sizes: Sizes) -> bool:
    """Whether weight gradients of the emitted code are put off."""
    parallel = sizes.parallel
    return sizes.stack.traced and parallel.pp > 1 and parallel.schedule.name in SPLITTING[:-1]


class Rank(NamedTuple):
    """One pipeline rank: what it holds whatever is in flight."""

    book: Book
    one: Holding
    stage: int

    @property
    def sizes(self) -> Sizes:
        """One microbatch."""
        return self.book.sizes

    @property
    def chunks(self) -> tuple[Stage, ...]:
        """Its chunks, or those of another rank that holds alike."""
        return self.one.chunks

    def late(self, chunk: int) -> tuple[int, str]:
        """What a chunk leaves of a microbatch for the second half."""
        one, words = layer(self.sizes)
        number = self.chunks[chunk].layers
        value, formula = number * one, f"{number} x ({words})"
        if self.chunks[chunk].head:
            more, words = head(self.sizes)
            value, formula = value + more, f"{formula} + {words}"
        return value, formula

    def whole(self, chunk: int) -> int:
        """What a chunk keeps of a microbatch for the first half."""
        value = self.one.kept[chunk].value_bytes
        lines = ends.end_lines(self.book.layers, self.chunks[chunk], 1)
        if self.chunks[chunk].head:
            lines = (*lines, *ends.loss_lines(self.sizes, 1)[0])
        return value + sum(line.value_bytes for line in lines)

    def activations(
        self, held: Halves, *, left: int | None = None, done: int | None = None
    ) -> Part:
        """What lies there of the microbatches in flight. The backward of one of chunk `left` has
        left the head behind, the weight gradients of one of chunk `done` have."""
        whole = self.book.activations(self.one, held.whole)
        lines = []
        for chunk, number in enumerate(held.late):
            if number:
                value, formula = self.late(chunk)
                value, formula = number * value, f"{number} x ({formula})"
                if chunk == done and self.chunks[chunk].head:
                    less = head(self.sizes)[0]
                    value, formula = value - less, f"{formula} - {less}"
                lines.append(_late(value, formula))
        for chunk, number in enumerate(held.whole):
            logits = number - (chunk == left)
            if self.chunks[chunk].head and logits > 0:
                lines += ends.loss_lines(self.sizes, logits)[0]
        return Part.of(whole.lines, lines)


def moments(book: Book, one: Holding, stage: int) -> Iterator[Moment]:
    """The moments up to the optimizer's, each at its most over the chunks."""
    rank = Rank(book, one, stage)
    most: dict[str, Moment] = {}
    for moment in _moments(rank):
        if moment.name not in most or moment.value_bytes > most[moment.name].value_bytes:
            most[moment.name] = moment
    yield from most.values()


def _moments(rank: Rank) -> Iterator[Moment]:
    book, sizes, always = rank.book, rank.sizes, rank.one.always
    received = book.received if rank.one.receives else ()
    parallel, numbers = sizes.parallel, range(len(rank.chunks))
    held = halves(
        parallel.schedule,
        pp=parallel.pp,
        microbatches=book.microbatches,
        stage=rank.stage,
        whole=[rank.whole(chunk) for chunk in numbers],
        late=[rank.late(chunk)[0] for chunk in numbers],
    )
    head_here = any(chunk.head for chunk in rank.chunks)
    here = head_here or any(chunk.embedding for chunk in rank.chunks)
    tied = sizes.model.tied_embeddings and any(chunk.beside_embedding for chunk in rank.chunks)
    end = sizes.vocab * sizes.model.hidden if here else 0
    passed, running = book.passing(
        rank.one.kept, end, rank.one.receives, head=head_here and not tied, again=True
    )
    cut = parallel.zero >= 2 and book.shards.dense > 1
    if tied and cut:
        # The table's gradients leave once a microbatch, when the embedding has added its own.
        always = Part.of(always.lines, (_leaving(book, end, "tied embedding's gradients"),))
    inside = book.backward(rank.one.kept)
    for number, chunk in enumerate(rank.chunks):
        forward, before = held.forward[number], held.before[number]
        after, weights_from = held.after[number], held.weights[number]
        split = held.splits[number]
        while_running, of_head, of_end = (
            tuple(line for line in lines if not split or not _leaves(line))
            for lines in (running.lines, passed.head, passed.embedding)
        )
        if forward is not None and chunk.head:
            now = Part.of(ends.loss_lines(sizes, 1)[1], passed.loss, received)
            yield Moment.of("loss", always, rank.activations(forward), now)
        if before is not None:
            rest = rank.activations(before, left=number)
            if chunk.head:
                now = Part.of(backward.head(sizes), of_head, received)
                yield Moment.of("backward of the head", always, rest, now)
            behind: Lines = ()
            if chunk.head and split:
                value, formula = head(sizes)
                behind = (_late(value, formula),)
            now = Part.of(behind, while_running)
            yield Moment.of("backward", always, rest, inside, now)
        rest = rank.activations(after) if after is not None else always
        if after is not None and split:
            # The layer that the first half comes to last is still whole.
            kept = book.costliest(rank.one.kept)
            again = sizes.train.recompute.name == "full"
            whole = (kept.input_bytes if again else kept.kept_bytes) - layer(sizes)[0]
            now = Part.of((_late(max(0, whole), f"{whole}"),), while_running)
            yield Moment.of("end of an input gradient", always, rest, inside, now)
        if after is not None and chunk.embedding:
            if split and cut and not tied:
                of_end = (*of_end, _leaving(book, end, "embedding's gradients"))
            now = Part.of(backward.embedding(sizes), of_end)
            yield Moment.of("backward of the embedding", always, rest, now)
        if weights_from is not None:
            if chunk.head:
                shards = (_leaving(book, end, "head's gradients"),) if cut and not tied else ()
                now = Part.of(weights(sizes, head=True), received, shards)
                yield Moment.of("weight gradients", always, rank.activations(weights_from), now)
            rest = rank.activations(weights_from, done=number)
            now = Part.of(weights(sizes), received, filter(_leaves, running.lines))
            yield Moment.of("weight gradients", always, rest, now)


def _leaving(book: Book, unit: int, name: str) -> Line:
    each = book.each.gradients
    source = book.sizes.stack.source
    words = f"{name} before they leave"
    return Line("buffers", words, int(each * unit), f"{each:g} x {unit}", source)


def _leaves(line: Line) -> bool:
    """Whether it is gradients on their way, which come with those of weights."""
    return line.category == "buffers" and line.name.endswith("before they leave")


def _late(value: int, formula: str) -> Line:
    name = "what weight gradients are made of"
    return Line("activations", name, value, formula, "arXiv:2401.10241, section 4")


# ── One microbatch ────────────────────────────────────────────────────────────


def layer(sizes: Sizes) -> tuple[int, str]:
    """Bytes that one dense layer leaves, and how they come about.

    Inputs: of attention and MLP, of the last matrix of each. Gradients: of queries, keys and
    values, of the MLP's first matrices, of the stream behind each last matrix.
    """
    model, width = sizes.model, sizes.width
    sides = 1 if model.parallel_blocks else 2
    inputs = 1 if model.parallel_blocks and model.shared_norm else 2
    stream, words = sizes.stream()
    whole, whole_words = _whole(sizes)
    attention = (2 * sizes.heads + 2 * sizes.kv_heads) * model.head_dim
    matrices = 2 if model.activation in GATED else 1
    inner = (1 + matrices) * -(-model.ffn // sizes.tp)
    rest, rest_words = sizes.inner(attention + inner, width)
    value = inputs * stream + sides * whole + rest
    return value, f"{inputs} x {words} + {sides} x {whole_words} + {rest_words}"


def head(sizes: Sizes) -> tuple[int, str]:
    """The input of the head and the gradient of its logits."""
    stream, words = sizes.stream()
    logits = sizes.width * sizes.tokens * sizes.vocab
    return stream + logits, f"{words} + {sizes.width} x {sizes.tokens} x {sizes.vocab}"


def weights(sizes: Sizes, *, head: bool = False) -> Lines:
    """The gradients of a layer's largest linear, or of the head: over tp those of the matrices that
    read one input, which is gathered for them."""
    model = sizes.model
    matrices = 2 if sizes.tp > 1 and model.activation in GATED else 1
    rows = sizes.vocab if head else matrices * -(-model.ffn // sizes.tp)
    gradients = sizes.width * model.hidden * rows
    gathered = _whole(sizes)[0] if sizes.residual > 1 else 0
    value, source = gradients + gathered, sizes.stack.source
    return (Line("temporaries", "gradients of weights", value, f"{value}", source),)


def _whole(sizes: Sizes) -> tuple[int, str]:
    value = sizes.width * sizes.tokens * sizes.model.hidden
    return value, f"{sizes.width} x {sizes.tokens} x {sizes.model.hidden}"
