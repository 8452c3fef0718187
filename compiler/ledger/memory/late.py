"""The moments of a step whose backwards are split, in the emitted code.

The first half leaves for each linear its input and the gradient of its output (`runtime/
deferred.py`); all else that the forward saved is gone, and what is computed again for it is kept.
Inputs of columns are pieces of the sequence where that is cut, gradients of rows are whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.layout.stages import SPLITTING
from parlay.compiler.ledger.memory import backward, ends
from parlay.compiler.ledger.memory.flight import Halves, halves
from parlay.compiler.ledger.memory.record import Held, Line, Moment, Part
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


class Shares(NamedTuple):
    """Bytes of one microbatch by chunk: what the first half leaves for the second (`late`, as
    `words` say), what the loss keeps, and all that is kept for the first half (`whole`)."""

    late: tuple[int, ...]
    words: tuple[str, ...]
    loss: tuple[int, ...]
    whole: tuple[int, ...]

    @classmethod
    def of(cls, book: Book, one: Holding) -> Shares:
        """Those of stages that hold alike."""
        sizes = book.sizes
        each, each_words = layer(sizes)
        late, words, loss = [], [], []
        for chunk in one.chunks:
            value, formula = chunk.layers * each, f"{chunk.layers} x ({each_words})"
            saved = 0
            if chunk.head:
                more, head_words = head(sizes)
                value, formula = value + more, f"{formula} + {head_words}"
                saved = sum(line.value_bytes for line in ends.loss_lines(sizes, 1)[0])
            late.append(value)
            words.append(formula)
            loss.append(saved)
        whole = [kept.each_bytes + more for kept, more in zip(one.kept, loss, strict=True)]
        return cls(tuple(late), tuple(words), tuple(loss), tuple(whole))


class Waiting(NamedTuple):
    """What lies there of the microbatches in flight.

    The backward of one of chunk `left` has left the head behind, the weight gradients of one of
    chunk `done` have. Lines are made when they are asked for.
    """

    sizes: Sizes
    chunks: tuple[Stage, ...]
    shares: Shares
    whole: Held
    held: Halves
    left: int | None
    done: int | None
    value_bytes: int

    def counted(self) -> int:
        """Bytes of all."""
        shares, held = self.shares, self.held
        value: int = self.whole.value_bytes + sum(map(mul, held.late, shares.late))
        for place, loss in enumerate(shares.loss):
            if loss:
                value += max(0, self._logits(place)) * loss
                if place == self.done and held.late[place]:
                    value -= head(self.sizes)[0]
        return value

    @property
    def lines(self) -> Lines:
        """Layers and ends, what waits for weight gradients, and logits."""
        lines = list(self.whole.lines)
        for place, number in enumerate(self.held.late):
            if number:
                value = number * self.shares.late[place]
                formula = f"{number} x ({self.shares.words[place]})"
                if place == self.done and self.chunks[place].head:
                    less = head(self.sizes)[0]
                    value, formula = value - less, f"{formula} - {less}"
                lines.append(_late(value, formula))
        for place, chunk in enumerate(self.chunks):
            if chunk.head and (logits := self._logits(place)) > 0:
                lines += ends.loss_lines(self.sizes, logits)[0]
        return tuple(line for line in lines if line.value_bytes)

    def _logits(self, place: int) -> int:
        return self.held.whole[place] - (place == self.left)


class Kind(NamedTuple):
    """A moment of stages that hold alike: at which of a chunk's (`when`), and what is there beside
    the microbatches in flight. `split` says for which backwards of the chunk, None for all."""

    name: str
    when: str
    chunk: int
    parts: tuple[Held, ...]
    value_bytes: int
    split: bool | None = None
    left: bool = False
    done: bool = False


def moments(book: Book, one: Holding, stage: int) -> Iterator[Moment]:
    """The moments up to the optimizer's, each at its most over the chunks."""
    if not one.late:
        one.late.append((Shares.of(book, one), tuple(_kinds(book, one))))
    [(shares, kinds)] = one.late
    parallel = book.spec.parallel
    found = halves(
        parallel.schedule,
        pp=parallel.pp,
        microbatches=book.microbatches,
        stage=stage,
        whole=shares.whole,
        late=shares.late,
    )
    most: dict[str, tuple[int, Kind, Waiting]] = {}
    lying: dict[tuple[Halves, bool, bool], Waiting] = {}
    for kind in kinds:
        chunk = kind.chunk
        held: Halves | None = getattr(found, kind.when)[chunk]
        if held is None or kind.split not in (None, found.splits[chunk]):
            continue
        # Only a head makes a difference to who has left it behind.
        head_here = one.chunks[chunk].head
        asked = (held, kind.left and head_here, kind.done and head_here)
        if asked not in lying:
            left, done = (chunk if asked[1] else None), (chunk if asked[2] else None)
            whole = book.activations(one, held.whole)
            waiting = Waiting(book.sizes, one.chunks, shares, whole, held, left, done, 0)
            lying[asked] = waiting._replace(value_bytes=waiting.counted())
        waiting = lying[asked]
        value = waiting.value_bytes + kind.value_bytes
        if kind.name not in most or value > most[kind.name][0]:
            most[kind.name] = value, kind, waiting
    for value, kind, waiting in most.values():
        always, *now = kind.parts
        yield Moment(kind.name, (always, waiting, *now), value)


def _kinds(book: Book, one: Holding) -> Iterator[Kind]:
    sizes, always = book.sizes, one.always
    received = book.received if one.receives else ()
    head_here = any(chunk.head for chunk in one.chunks)
    here = head_here or any(chunk.embedding for chunk in one.chunks)
    tied = sizes.model.tied_embeddings and any(chunk.beside_embedding for chunk in one.chunks)
    end = sizes.vocab * sizes.model.hidden if here else 0
    passed, running = book.passing(
        one.kept, end, one.receives, head=head_here and not tied, again=True
    )
    cut = sizes.parallel.zero >= 2 and book.shards.dense > 1
    if tied and cut:
        # The table's gradients leave once a microbatch, when the embedding has added its own.
        always = Part.of(always.lines, (_leaving(book, end, "tied embedding's gradients"),))
    inside = book.backward(one.kept)
    for place, chunk in enumerate(one.chunks):
        if chunk.head:
            now = Part.of(ends.loss_lines(sizes, 1)[1], passed.loss, received)
            yield _kind("loss", "forward", place, (always, now))
        for split in (False, True):
            while_running, of_head, of_end = (
                tuple(line for line in lines if not split or not _leaves(line))
                for lines in (running.lines, passed.head, passed.embedding)
            )
            behind: Lines = ()
            if chunk.head:
                now = Part.of(backward.head(sizes), of_head, received)
                yield _kind(
                    "backward of the head", "before", place, (always, now), split, left=True
                )
                behind = (_late(*head(sizes)),) if split else ()
            now = Part.of(behind, while_running)
            yield _kind("backward", "before", place, (always, inside, now), split, left=True)
            if split:
                # The layer that the first half comes to last is still whole.
                kept = book.costliest(one.kept)
                again = sizes.train.recompute.name == "full"
                whole = (kept.input_bytes if again else kept.kept_bytes) - layer(sizes)[0]
                now = Part.of((_late(max(0, whole), f"{whole}"),), while_running)
                name = "end of an input gradient"
                yield _kind(name, "after", place, (always, inside, now), split)
            if chunk.embedding:
                if split and cut and not tied:
                    of_end = (*of_end, _leaving(book, end, "embedding's gradients"))
                now = Part.of(backward.embedding(sizes), of_end)
                yield _kind("backward of the embedding", "after", place, (always, now), split)
        if chunk.head:
            shards = (_leaving(book, end, "head's gradients"),) if cut and not tied else ()
            now = Part.of(weights(sizes, head=True), received, shards)
            yield _kind("weight gradients", "weights", place, (always, now))
        now = Part.of(weights(sizes), received, filter(_leaves, running.lines))
        yield _kind("weight gradients", "weights", place, (always, now), done=True)


def _kind(
    name: str,
    when: str,
    chunk: int,
    parts: tuple[Held, ...],
    split: bool | None = None,
    *,
    left: bool = False,
    done: bool = False,
) -> Kind:
    value = sum(part.value_bytes for part in parts)
    return Kind(name, when, chunk, parts, value, split, left, done)


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
