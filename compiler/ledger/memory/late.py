"""The moments of a step whose backwards are split, in the emitted code (`put_off.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from parlay.compiler.layout import Stage
from parlay.compiler.layout.stages import SPLITTING
from parlay.compiler.ledger.memory import backward, ends, put_off
from parlay.compiler.ledger.memory.flight import Halves, Moments, halves
from parlay.compiler.ledger.memory.put_off import PutOff
from parlay.compiler.ledger.memory.record import Held, Line, Moment, Part
from parlay.compiler.ledger.memory.sharded import Passing
from parlay.compiler.ledger.memory.sizes import Sizes

if TYPE_CHECKING:
    from parlay.compiler.ledger.memory.book import Book
    from parlay.compiler.ledger.memory.holding import Holding, Kept

Lines = tuple[Line, ...]


def splits(sizes: Sizes) -> bool:
    """Whether weight gradients of the emitted code are put off."""
    parallel = sizes.parallel
    return sizes.stack.traced and parallel.pp > 1 and parallel.schedule.name in SPLITTING[:-1]


class Shares(NamedTuple):
    """Bytes of one microbatch by chunk: what the first half leaves for the second (`late`), what
    the loss keeps for it, and that with what layers and ends do (`whole`); `head` is what the head
    leaves of one."""

    late: tuple[int, ...]
    loss: tuple[int, ...]
    whole: tuple[int, ...]
    head: int

    @classmethod
    def of(cls, book: Book, one: Holding) -> Shares:
        """Those of stages that hold alike."""
        layers, ended = book.put_off.layers, book.put_off.head[0]
        late, loss = [], []
        for chunk, held in zip(one.chunks, one.kept, strict=True):
            each = sum([part.layers * layers[part.layer.experts][0] for part in held.counts])
            late.append(each + (ended if chunk.head else 0))
            saved = ends.loss_lines(book.sizes, 1)[0] if chunk.head else ()
            loss.append(sum([line.value_bytes for line in saved]))
        whole = [kept.each_bytes + more for kept, more in zip(one.kept, loss, strict=True)]
        return cls(tuple(late), tuple(loss), tuple(whole), ended)

    def value_bytes(self, held: Halves) -> int:
        """Bytes of the microbatches in flight, logits among them."""
        value: int = sum(map(mul, held.whole, self.whole)) + sum(map(mul, held.late, self.late))
        return value

    def gone(self, held: Halves, left: int | None, done: int | None) -> int:
        """Bytes that are there no longer; the rest is as in `Waiting`."""
        gone = self.loss[left] if left is not None and held.whole[left] else 0
        return gone + (self.head if done is not None and held.late[done] else 0)


class Waiting(NamedTuple):
    """What lies there of the microbatches in flight.

    The backward of one of chunk `left` has left the head behind, the weight gradients of one of
    chunk `done` have. Lines are made when they are asked for.
    """

    sizes: Sizes
    once: PutOff
    chunks: tuple[Stage, ...]
    kept: tuple[Kept, ...]
    shares: Shares
    whole: Held
    held: Halves
    left: int | None
    done: int | None

    @property
    def value_bytes(self) -> int:
        """Bytes of all."""
        shares, held = self.shares, self.held
        return shares.value_bytes(held) - shares.gone(held, self.left, self.done)

    @property
    def lines(self) -> Lines:
        """Layers and ends, what waits for weight gradients, and logits."""
        lines = list(self.whole.lines)
        for place, number in enumerate(self.held.late):
            if number:
                value = number * self.shares.late[place]
                formula = f"{number} x ({self._words(place)})"
                if place == self.done and self.chunks[place].head:
                    less = self.shares.head
                    value, formula = value - less, f"{formula} - {less}"
                lines.append(put_off.line(value, formula))
        for place, chunk in enumerate(self.chunks):
            if chunk.head and (logits := self._logits(place)) > 0:
                lines += ends.loss_lines(self.sizes, logits)[0]
        return tuple(line for line in lines if line.value_bytes)

    def _words(self, place: int) -> str:
        words = [
            f"{part.layers} x ({self.once.layers[part.layer.experts][1]})"
            for part in self.kept[place].counts
        ]
        return " + ".join([*words, *([self.once.head[1]] if self.chunks[place].head else ())])

    def _logits(self, place: int) -> int:
        return self.held.whole[place] - (place == self.left)


class Kind(NamedTuple):
    """A moment of stages that hold alike: at which of a chunk's (`when`, a field of `Moments`), and
    what is there beside the microbatches in flight; `left` and `done` are as in `Waiting`."""

    name: str
    when: int
    parts: tuple[Held, ...]
    value_bytes: int
    left: int | None
    done: int | None


class Around(NamedTuple):
    """What is there on stages that hold alike beside any chunk's own: states with the tied table's
    gradients (`always`), what sharding makes whole, what runs beside a layer's backward, `sent`
    what leaves while weight gradients are made. `end` are the parameters of an end that is here,
    `tied` says that one table is both, and `cut` that gradients leave by the microbatch."""

    always: Part
    received: Lines
    sent: Lines
    passed: Passing
    running: Part
    end: int
    tied: bool
    cut: bool

    @classmethod
    def of(cls, book: Book, one: Holding) -> Around:
        """That of stages that hold alike."""
        sizes, always = book.sizes, one.always
        head = any(chunk.head for chunk in one.chunks)
        here = head or any(chunk.embedding for chunk in one.chunks)
        tied = sizes.model.tied_embeddings and any(chunk.beside_embedding for chunk in one.chunks)
        end = sizes.vocab * sizes.model.hidden if here else 0
        # A gradient lies there before it is needed, an activation comes when it is.
        receives = len(one.chunks) > 1 or not head
        passed, running = book.passing(one.kept, end, receives, head=head and not tied, again=True)
        cut = sizes.parallel.zero >= 2 and book.shards.dense > 1
        if tied and cut:
            # The table's gradients leave once a microbatch, when the embedding has added its own.
            always = Part.of(always.lines, (_leaving(book, end, "tied embedding's gradients"),))
        received = book.received if receives else ()
        sent = book.received if one.receives else ()
        return cls(always, received, sent, passed, running, end, tied, cut)


class Kinds(NamedTuple):
    """The moments of a chunk whose backward is split, or is not. `most` is what is there besides at
    the fullest of those that nothing is gone of, by `when`; `less` are the others."""

    every: tuple[Kind, ...]
    most: dict[int, int]
    less: tuple[Kind, ...]

    @classmethod
    def of(cls, every: tuple[Kind, ...]) -> Kinds:
        """The record of `every` moment."""
        most: dict[int, int] = {}
        less = []
        for kind in every:
            if kind.left is not None or kind.done is not None:
                less.append(kind)
            else:
                most[kind.when] = max(most.get(kind.when, 0), kind.value_bytes)
        return cls(every, most, tuple(less))


class Late(NamedTuple):
    """What a split backward has on stages that hold alike; `known` are the moments that were asked
    for, by what their chunk is and whether its backward is split."""

    shares: Shares
    around: Around
    known: dict[tuple[object, ...], Kinds]

    @classmethod
    def of(cls, book: Book, one: Holding) -> Late:
        """Those of stages that hold alike."""
        if not one.late:
            one.late.append(cls(Shares.of(book, one), Around.of(book, one), {}))
        return one.late[0]

    def kinds(self, book: Book, one: Holding, place: int, split: bool) -> Kinds:
        """The moments of the chunk at `place`."""
        asked = (split, *book.same(one.chunks[place]))
        if asked not in self.known:
            self.known[asked] = Kinds.of(tuple(_kinds(book, one, self.around, place, split)))
        return self.known[asked]

    def found(self, book: Book, stage: int) -> Moments:
        """What is in flight on pipeline rank `stage` at each moment."""
        return halves(
            book.spec.parallel.schedule,
            pp=book.spec.parallel.pp,
            microbatches=book.microbatches,
            stage=stage,
            whole=self.shares.whole,
            late=self.shares.late,
        )


def peak(book: Book, one: Holding, stage: int) -> int:
    """Bytes at the fullest of the moments and the optimizer's."""
    late = Late.of(book, one)
    shares, found = late.shares, late.found(book, stage)
    most = one.update.value_bytes
    for place, split in enumerate(found.splits):
        kinds = late.kinds(book, one, place, split)
        for when, value in kinds.most.items():
            held = found[when][place]
            if isinstance(held, Halves):
                most = max(most, value + shares.value_bytes(held))
        for kind in kinds.less:
            held = found[kind.when][place]
            if isinstance(held, Halves):
                gone = shares.gone(held, kind.left, kind.done)
                most = max(most, kind.value_bytes + shares.value_bytes(held) - gone)
    return most


def moments(book: Book, one: Holding, stage: int) -> Iterator[Moment]:
    """The moments of a step, each at its most over the chunks."""
    late = Late.of(book, one)
    shares, found = late.shares, late.found(book, stage)
    most: dict[str, tuple[int, Kind, Halves]] = {}
    for place, split in enumerate(found.splits):
        for kind in late.kinds(book, one, place, split).every:
            held = found[kind.when][place]
            if not isinstance(held, Halves):
                continue
            value = kind.value_bytes + shares.value_bytes(held)
            value -= shares.gone(held, kind.left, kind.done)
            if kind.name not in most or value > most[kind.name][0]:
                most[kind.name] = value, kind, held
    for value, kind, held in most.values():
        whole = book.activations(one, held.whole)
        waiting = Waiting(
            *(book.sizes, book.put_off, one.chunks, one.kept, shares, whole, held),
            left=kind.left,
            done=kind.done,
        )
        always, *now = kind.parts
        yield Moment(kind.name, (always, waiting, *now), value)
    yield one.update


def _kinds(book: Book, one: Holding, around: Around, place: int, split: bool) -> Iterator[Kind]:
    """The moments of the chunk at `place`, whose backward is split or is not."""
    sizes, once, chunk = book.sizes, book.put_off, one.chunks[place]
    always, received, sent, passed, running, end, tied, cut = around
    inside = book.backward(one.kept, put_off=split)
    behind_head = place if chunk.head else None
    if chunk.head:
        now = Part.of(ends.loss_lines(sizes, 1)[1], passed.loss, received)
        yield _kind("loss", "forward", (always, now))
    while_running, of_head, of_end = (
        tuple(line for line in lines if not split or not _leaves(line))
        for lines in (running.lines, passed.head, passed.embedding)
    )
    behind: Lines = ()
    if chunk.head:
        now = Part.of(backward.head(sizes), of_head, received)
        yield _kind("backward of the head", "before", (always, now), left=behind_head)
        behind = (once.behind if split else once.normed,)
    now = Part.of(behind, while_running)
    yield _kind("backward", "before", (always, inside, now), left=behind_head)
    if split:
        # The layer that the first half comes to last is still whole, and nothing of it is left.
        kept = book.costliest(one.kept)
        again = sizes.train.recompute.name == "full"
        saved, left = (
            kept.input_bytes if again else kept.kept_bytes,
            once.layers[kept.experts][0],
        )
        now = Part.of((put_off.line(saved - left, f"{saved} - {left}"),), while_running)
        yield _kind("end of an input gradient", "after", (always, inside, now))
    if chunk.embedding:
        if split and cut and not tied:
            of_end = (*of_end, _leaving(book, end, "embedding's gradients"))
        now = Part.of(backward.embedding(sizes), of_end, received if split else ())
        yield _kind("backward of the embedding", "after", (always, now))
    if chunk.head:
        shards = (_leaving(book, end, "head's gradients"),) if cut and not tied else ()
        now = Part.of(once.of_head, sent, shards)
        yield _kind("weight gradients", "weights", (always, now))
    now = Part.of(once.weights, sent, filter(_leaves, running.lines))
    yield _kind("weight gradients", "weights", (always, now), done=behind_head)


def _kind(
    name: str,
    when: str,
    parts: tuple[Held, ...],
    *,
    left: int | None = None,
    done: int | None = None,
) -> Kind:
    value = sum([part.value_bytes for part in parts])
    return Kind(name, Moments._fields.index(when), parts, value, left, done)


def _leaving(book: Book, unit: int, name: str) -> Line:
    each = book.each.gradients
    source = book.sizes.stack.source
    words = f"{name} before they leave"
    return Line("buffers", words, int(each * unit), f"{each:g} x {unit}", source)


def _leaves(line: Line) -> bool:
    """Whether it is gradients on their way, which come with those of weights."""
    return line.category == "buffers" and line.name.endswith("before they leave")
