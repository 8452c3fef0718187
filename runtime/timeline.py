"""Pipeline schedules as lists of actions, one list a rank. Pure Python.

The compiler prices the very timeline that the ranks run. A schedule says only in which order each
rank works; when a message travels follows from playing the timeline with actions of one unit each:
what an action of slot t produces is sent in round t, and both ends post it in that round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]


class Action(NamedTuple):
    """One microbatch through one stage.

    `F` is the forward, `B` the whole backward; `I` and `W` are its two halves, the gradient of the
    input and of the weights. `stage` counts in the order of execution; which rank holds it is the
    timeline's `route`.
    """

    kind: Kind
    stage: int
    microbatch: int


class Message(NamedTuple):
    """An activation (`F`) or a gradient (`B`) on its way to `stage`, from rank to rank."""

    kind: Literal["F", "B"]
    stage: int
    microbatch: int
    source: int
    target: int


class Round(NamedTuple):
    """What one rank does in one slot: at most one action, then its messages as one batch."""

    slot: int
    action: Action | None
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


@dataclass(frozen=True)
class Timeline:
    """The actions of every pipeline rank, in order.

    Before: every microbatch passes every stage once forward and once backward.
    After: `rounds(rank)` of all ranks, run in order, never wait for each other in a ring.

    `route` says which rank holds chunk c at place i: rank i in a `ring`; in a `fold` and a `mirror`
    odd chunks run back over the ranks. In a `mirror` each chunk is a whole copy of the model, and a
    microbatch passes one of them.
    """

    pp: int
    chunks: int
    microbatches: int
    actions: tuple[tuple[Action, ...], ...]
    route: Literal["ring", "fold", "mirror"] = "ring"

    @property
    def stages(self) -> int:
        """The number of stages, over all ranks and chunks."""
        return self.pp * self.chunks

    @property
    def splits(self) -> bool:
        """Whether a backward is done in two halves."""
        return any(action.kind == "W" for actions in self.actions for action in actions)

    def rank_of(self, stage: int) -> int:
        """The pipeline rank that holds `stage`."""
        chunk, place = divmod(stage, self.pp)
        return self.pp - 1 - place if chunk % 2 and self.route != "ring" else place

    def chunk_of(self, stage: int) -> int:
        """Which of its rank's chunks `stage` is."""
        return stage // self.pp

    def needs(self, action: Action) -> Action | None:
        """The action, on another stage, whose output `action` starts from."""
        kind, stage, microbatch = action
        if kind == "F":
            return None if self.is_first(stage) else Action("F", stage - 1, microbatch)
        if kind == "W" or self.is_last(stage):
            return None
        return Action(kind, stage + 1, microbatch)

    def is_first(self, stage: int) -> bool:
        """Whether a microbatch starts at `stage`."""
        return stage % self.pp == 0 if self.route == "mirror" else stage == 0

    def is_last(self, stage: int) -> bool:
        """Whether the loss is made at `stage`."""
        return self.is_first(stage + 1) if self.route == "mirror" else stage == self.stages - 1

    def output(self, action: Action) -> Message | None:
        """The message that `action` produces; None where it stays on the rank."""
        kind, stage, microbatch = action
        to = stage + 1 if kind == "F" else stage - 1
        if kind == "W" or (self.is_last(stage) if kind == "F" else self.is_first(stage)):
            return None
        source, target = self.rank_of(stage), self.rank_of(to)
        if source == target:
            return None
        return Message("F" if kind == "F" else "B", to, microbatch, source, target)

    # ── Time ──────────────────────────────────────────────────────────────────

    def play(
        self, cost: Callable[[Action], float], *, delay: float = 0.0
    ) -> tuple[tuple[float, ...], ...]:
        """When each action ends, if it takes `cost(action)` and a message between ranks `delay`.

        An action starts once its rank is free and its input has arrived.
        """
        ends: list[list[float]] = [[] for _ in range(self.pp)]
        done: dict[tuple[bool, int, int], float] = {}  # forward?, stage, microbatch
        waiting: dict[tuple[bool, int, int], int] = {}
        free = [0.0] * self.pp
        ready = list(range(self.pp))
        while ready:
            rank = ready.pop()
            actions = self.actions[rank]
            while len(ends[rank]) < len(actions):
                action = actions[len(ends[rank])]
                start = free[rank]
                need = self.needs(action)
                if need is not None:
                    key = (need.kind == "F", need.stage, need.microbatch)
                    arrived = done.get(key)
                    if arrived is None:
                        waiting[key] = rank
                        break
                    if self.rank_of(need.stage) != rank:
                        arrived += delay
                    start = max(start, arrived)
                free[rank] = start + cost(action)
                ends[rank].append(free[rank])
                if action.kind == "W":
                    continue
                made = (action.kind == "F", action.stage, action.microbatch)
                done[made] = free[rank]
                waiter = waiting.pop(made, None)
                if waiter is not None:
                    ready.append(waiter)
        if waiting:
            (forward, stage, microbatch), rank = min(waiting.items())
            lacking = Action("F" if forward else "B", stage, microbatch)
            raise ValueError(f"rank {rank} waits for {lacking} for ever")
        return tuple(map(tuple, ends))

    def bubble(self, *, forward: float = 1.0, backward: float = 2.0) -> float:
        """The idle share of the ranks' time, from the first action to the last.

        `forward` and `backward` are what a microbatch costs in one stage; the halves of a backward
        cost half of it each.
        """
        costs = {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}
        ends = self.play(lambda action: costs[action.kind])
        busy = sum(costs[action.kind] for actions in self.actions for action in actions)
        return 1.0 - busy / (self.pp * max(end[-1] for end in ends))

    @cached_property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        """The slot of each action, all actions taking one unit of time."""
        played = self.play(lambda action: 1.0)
        return tuple(tuple(round(end) - 1 for end in ends) for ends in played)

    # ── Messages ──────────────────────────────────────────────────────────────

    def rounds(self, rank: int) -> tuple[Round, ...]:
        """What `rank` does, slot by slot; slots where it does nothing are left out.

        A rank sends at most one message a round, so that two ranks exchange at most one message a
        round and direction, and need no tags to tell messages apart.
        """
        actions: dict[int, Action] = {}
        sends: dict[int, Message] = {}
        receives: dict[int, list[Message]] = {}
        for other in sorted({rank, (rank - 1) % self.pp, (rank + 1) % self.pp}):
            for action, slot in zip(self.actions[other], self.slots[other], strict=True):
                message = self.output(action)
                if other == rank:
                    actions[slot] = action
                    if message is not None:
                        sends[slot] = message
                elif message is not None and message.target == rank:
                    receives.setdefault(slot, []).append(message)
        return tuple(
            Round(
                slot,
                actions.get(slot),
                (sends[slot],) if slot in sends else (),
                tuple(receives.get(slot, ())),
            )
            for slot in sorted(actions.keys() | receives.keys())
        )

    def in_flight(self, rank: int) -> int:
        """The most (microbatch, chunk) pairs whose activations `rank` holds at one time.

        A pair counts from its forward to the end of its backward, or of its `W`.
        """
        held = most = 0
        for action in self.actions[rank]:
            if action.kind == "F":
                held += 1
                most = max(most, held)
            elif action.kind in "BW":
                held -= 1
        return most


# ── Schedules ─────────────────────────────────────────────────────────────────


def gpipe(pp: int, microbatches: int) -> Timeline:
    """All forwards, then all backwards."""
    _check(pp, 1, microbatches)
    return Timeline(
        pp,
        1,
        microbatches,
        tuple(
            tuple(Action("F", rank, i) for i in range(microbatches))
            + tuple(Action("B", rank, i) for i in range(microbatches))
            for rank in range(pp)
        ),
    )


def one_f_one_b(pp: int, microbatches: int) -> Timeline:
    """A forward for each stage behind, then one forward and one backward in turn.

    Rank r holds at most `pp - r` microbatches.
    """
    _check(pp, 1, microbatches)
    return Timeline(
        pp,
        1,
        microbatches,
        tuple(
            _alternate(
                [Action("F", rank, i) for i in range(microbatches)],
                [Action("B", rank, i) for i in range(microbatches)],
                warmup=pp - rank - 1,
            )
            for rank in range(pp)
        ),
    )


def interleaved(pp: int, chunks: int, microbatches: int) -> Timeline:
    """1F1B with `chunks` stages a rank, in Megatron's order.

    A rank takes `pp` microbatches through its first chunk, the same ones through its second, and so
    on, then the next `pp`; the backwards take the chunks from the last. `microbatches` is a
    multiple of `pp`.
    """
    _check(pp, chunks, microbatches)
    if microbatches % pp:
        raise ValueError(
            f"interleaved takes a multiple of pp = {pp} microbatches, not {microbatches}"
        )
    visits = [
        (chunk, first + i)
        for first in range(0, microbatches, pp)
        for chunk in range(chunks)
        for i in range(pp)
    ]
    return Timeline(
        pp,
        chunks,
        microbatches,
        tuple(
            _alternate(
                [Action("F", chunk * pp + rank, i) for chunk, i in visits],
                [Action("B", (chunks - 1 - chunk) * pp + rank, i) for chunk, i in visits],
                warmup=2 * (pp - rank - 1) + (chunks - 1) * pp,
            )
            for rank in range(pp)
        ),
    )


def _alternate(
    forwards: Sequence[Action], backwards: Sequence[Action], *, warmup: int
) -> tuple[Action, ...]:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards left over."""
    warmup = min(warmup, len(forwards))
    steady = [action for pair in zip(forwards[warmup:], backwards, strict=False) for action in pair]
    return (*forwards[:warmup], *steady, *backwards[len(forwards) - warmup :])


def _check(pp: int, chunks: int, microbatches: int) -> None:
    for name, value in (("pp", pp), ("chunks", chunks), ("microbatches", microbatches)):
        if value < 1:
            raise ValueError(f"{name} = {value}; the smallest value is 1")
