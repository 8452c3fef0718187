"""Which layers each pipeline rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from parlay.compiler.layout.balance import balanced
from parlay.compiler.spec.blocks.model import Model
from parlay.compiler.spec.blocks.parallel import Parallel
from parlay.compiler.spec.schema import Setting

FOLDED = ("zbv", "dualpipe_v")  # the second chunks run back over the ranks, in a V
SPLITTING = ("zero_bubble", *FOLDED, "dualpipe")  # gradients of weights come later than of inputs


class Stage(NamedTuple):
    """One chunk of layers on one pipeline rank; `first` and `last` count from 0, both included.

    `beside_embedding` says that another chunk of the rank has the embedding, for a head to read.
    """

    stage: int
    chunk: int
    first: int
    last: int
    embedding: bool
    head: bool
    beside_embedding: bool = False

    @property
    def layers(self) -> int:
        """How many layers it holds."""
        return self.last - self.first + 1

    @property
    def copies_embedding(self) -> bool:
        """Whether a head that is tied to the embedding has a copy of it."""
        return self.head and not (self.embedding or self.beside_embedding)


def chunks_of(schedule: Setting) -> int:
    """How many chunks of layers each pipeline rank holds."""
    if schedule.name == "interleaved":
        chunks: int = schedule["chunks"]
        return chunks
    return 2 if schedule.name in (*FOLDED, "dualpipe") else 1


def steps_of(schedule: Setting, pp: int) -> int:
    """How many stages a microbatch passes, one after the other.

    pp · chunks; DualPipe's second chunks are a second copy of the parameters and count once.
    """
    return pp if schedule.name == "dualpipe" else pp * chunks_of(schedule)


def place_of(step: int, *, schedule: Setting, pp: int) -> tuple[int, int]:
    """Pipeline rank and chunk of the `step`-th stage that a microbatch passes."""
    chunk, rank = divmod(step, pp)
    return (pp - 1 - rank if chunk == 1 and schedule.name in FOLDED else rank), chunk


def borders(stage: Stage, *, schedule: Setting, pp: int) -> int:
    """How many of a stage's two borders lie between ranks; the turn of a V does not.

    Over each goes an activation one way, and its gradient the other.
    """
    turns = schedule.name in FOLDED and stage.stage == pp - 1
    before = not stage.embedding and not (turns and stage.chunk == 1)
    after = not stage.head and not (turns and stage.chunk == 0)
    return before + after


def rows_of(stages: Sequence[Stage], *, pp: int) -> tuple[tuple[Stage, ...], ...]:
    """What each pipeline rank holds, by chunk."""
    rows: list[list[Stage]] = [[] for _ in range(pp)]
    for stage in sorted(stages, key=lambda stage: stage.chunk):
        rows[stage.stage].append(stage)
    return tuple(map(tuple, rows))


def alike(
    rows: Sequence[Sequence[Stage]], model: Model, *, schedule: Setting
) -> tuple[tuple[int, ...], ...]:
    """The pipeline ranks whose chunks have as many layers of each kind, the same ends and as many
    borders, in the order of their first ones."""
    pp, found = len(rows), dict[tuple[object, ...], list[int]]()
    for rank, row in enumerate(rows):
        same = tuple(
            (each.layers, mixed(each, model), *each[4:], borders(each, schedule=schedule, pp=pp))
            for each in row
        )
        found.setdefault(same, []).append(rank)
    return tuple(map(tuple, found.values()))


def mixed(stage: Stage, model: Model) -> int:
    """How many of a stage's layers have experts."""
    experts = model.experts
    if experts is None or None in (experts.dense_layers, experts.every):  # absent, or in error
        return 0
    return experts.layers_before(stage.last + 1) - experts.layers_before(stage.first)


def counts_of(model: Model, parallel: Parallel, *, seq: int | None) -> tuple[int, ...]:
    """Layers of each stage in the order of execution: listed, balanced, or an equal split."""
    steps = steps_of(parallel.schedule, parallel.pp)
    if parallel.stages == "auto":
        return balanced(model, steps, seq=seq)
    if parallel.stages is not None:
        assert not isinstance(parallel.stages, str)
        return tuple(parallel.stages)
    each, rest = divmod(model.layers, steps)
    assert rest == 0, "a check lets no uneven split through"
    return (each,) * steps


def cut(counts: Sequence[int], *, schedule: Setting, pp: int) -> tuple[Stage, ...]:
    """The stages in the order of execution, `counts` layers each.

    `[3, 2]`, pp 2 --> layers 0 to 2 on rank 0 with the embedding, 3 and 4 on rank 1 with the head
    """
    stages: list[Stage] = []
    first = 0
    for step, layers in enumerate(counts):
        rank, chunk = place_of(step, schedule=schedule, pp=pp)
        last = first + layers - 1
        head = step == len(counts) - 1
        beside = head and step > 0 and (rank == 0 or schedule.name == "dualpipe")
        stages.append(Stage(rank, chunk, first, last, step == 0, head, beside))
        first += layers
    if schedule.name == "dualpipe":
        stages += [copy._replace(stage=pp - 1 - copy.stage, chunk=1) for copy in stages]
    return tuple(stages)
