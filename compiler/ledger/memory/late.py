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
from parlay.compiler.ledger.memory.flight import Halves, Moments, halves
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
    `words` say), what layers and ends keep for it (`kept`), what the loss does, and both
    (`whole`); `head` is what the head leaves of one."""

    late: tuple[int, ...]
    words: tuple[str, ...]
    kept: tuple[int, ...]
    loss: tuple[int, ...]
    whole: tuple[int, ...]
    head: int

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
        kept = [each.each_bytes for each in one.kept]
        whole = [each + more for each, more in zip(kept, loss, strict=True)]
        columns = (tuple(kept), tuple(loss), tuple(whole))
        return cls(tuple(late), tuple(words), *columns, head(sizes)[0])

    def value_bytes(self, held: Halves, left: int | None, done: int | None) -> int:
        """Bytes of the microbatches in flight; the rest is as in `Waiting`."""
        value: int = sum(map(mul, held.whole, self.kept)) + sum(map(mul, held.late, self.late))
        for place, loss in enumerate(self.loss):
            if loss:
                value += max(0, held.whole[place] - (place == left)) * loss
                if place == done and held.late[place]:
                    value -= self.head
        return value


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

    @property
    def value_bytes(self) -> int:
        """Bytes of all."""
        return self.shares.value_bytes(self.held, self.left, self.done)

    @property
    def lines(self) -> Lines:
        """Layers and ends, what waits for weight gradients, and logits."""
        lines = list(self.whole.lines)
        for place, number in enumerate(self.held.late):
            if number:
                value = number * self.shares.late[place]
                formula = f"{number} x ({self.shares.words[place]})"
                if place == self.done and self.chunks[place].head:
                    less = self.shares.head
                    value, formula = value - less, f"{formula} - {less}"
                lines.append(_late(value, formula))
        for place, chunk in enumerate(self.chunks):
            if chunk.head and (logits := self._logits(place)) > 0:
                lines += ends.loss_lines(self.sizes, logits)[0]
        return tuple(line for line in lines if line.value_bytes)

    def _logits(self, place: int) -> int:
        return self.held.whole[place] - (place == self.left)


class Kind(NamedTuple):
    """A moment of stages that hold alike: at which of a chunk's (`when`, a field of `Moments`), and
    what is there beside the microbatches in flight. `split` says for which backwards of the chunk,
    None for all; `left` and `done` are as in `Waiting`."""

    name: str
    when: int
    chunk: int
    parts: tuple[Held, ...]
    value_bytes: int
    split: bool | None
    left: int | None
    done: int | None


class Late(NamedTuple):
    """What a split backward has on stages that hold alike: `kinds[split][chunk]` are the moments of
    a chunk whose backward is split, or is not."""

    shares: Shares
    kinds: tuple[tuple[tuple[Kind, ...], ...], ...]

    @classmethod
    def of(cls, book: Book, one: Holding) -> Late:
        """Those of stages that hold alike."""
        every = list(_kinds(book, one))
        kinds = tuple(
            tuple(
                tuple(k for k in every if k.chunk == chunk and k.split in (None, split))
                for chunk in range(len(one.chunks))
            )
            for split in (False, True)
        )
        return cls(Shares.of(book, one), kinds)


def moments(book: Book, one: Holding, stage: int) -> Iterator[Moment]:
    """The moments up to the optimizer's, each at its most over the chunks."""
    if not one.late:
        one.late.append(Late.of(book, one))
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
    most: dict[str, tuple[int, Kind, Halves]] = {}
    known: dict[tuple[Halves, int | None, int | None], int] = {}
    states = (found.forward, found.before, found.after, found.weights)
    for chunk, split in enumerate(found.splits):
        for kind in kinds[split][chunk]:
            held = states[kind.when][chunk]
            if held is None:
                continue
            asked = (held, kind.left, kind.done)
            value = known.get(asked)
            if value is None:
                value = known[asked] = shares.value_bytes(*asked)
            value += kind.value_bytes
            if kind.name not in most or value > most[kind.name][0]:
                most[kind.name] = value, kind, held
    for value, kind, held in most.values():
        whole = book.activations(one, held.whole)
        waiting = Waiting(book.sizes, one.chunks, shares, whole, held, kind.left, kind.done)
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
        behind_head = place if chunk.head else None
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
                    "backward of the head", "before", place, (always, now), split, left=behind_head
                )
                behind = (_late(*head(sizes)),) if split else ()
            now = Part.of(behind, while_running)
            yield _kind("backward", "before", place, (always, inside, now), split, left=behind_head)
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
        yield _kind("weight gradients", "weights", place, (always, now), done=behind_head)


def _kind(
    name: str,
    when: str,
    chunk: int,
    parts: tuple[Held, ...],
    split: bool | None = None,
    *,
    left: int | None = None,
    done: int | None = None,
) -> Kind:
    value = sum(part.value_bytes for part in parts)
    return Kind(name, Moments._fields.index(when), chunk, parts, value, split, left, done)


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
