"""Pipeline schedules that split the backward: weight gradients fill idle time. Pure Python.

`I` is the gradient of a stage's input, `W` that of its weights; a rank may put `W` off, since no
other rank waits for it. Each schedule gives one rank's actions, and a `Timeline` of all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from parlay.runtime.timeline import Action, Timeline

Actions = list[Action]


def zero_bubble(pp: int, microbatches: int) -> Timeline:
    """ZB-H1 (arXiv:2401.10241): 1F1B whose rank r puts r weight gradients off to the end.

    Before: pp - 1 idle slots of F + B. After: of F + I - W, at the memory of 1F1B's first rank.
    """
    return _timeline(pp, 1, microbatches, zero_bubble_actions, "ring")


def zbv(pp: int, microbatches: int) -> Timeline:
    """ZB-V (arXiv:2405.15362): two chunks a rank, the second on the way back.

    No idle time but the start where F, I and W take the same; every rank holds 2·pp half stages.
    """
    return _timeline(pp, 2, microbatches, zbv_actions, "fold")


def dualpipe_v(pp: int, microbatches: int) -> Timeline:
    """DualPipe cut in half: the chunks of ZB-V in DualPipe's order, at least 2·pp microbatches."""
    return _timeline(pp, 2, microbatches, dualpipe_v_actions, "fold")


def dualpipe(pp: int, microbatches: int) -> Timeline:
    """DualPipe (arXiv:2412.19437): half of the microbatches from each end, two copies of the model.

    pp is even, and so are the microbatches, of which there are at least 2·pp. A forward and a
    backward that run beside each other stand one after the other, forward first.
    """
    return _timeline(pp, 2, microbatches, dualpipe_actions, "mirror")


def _timeline(
    pp: int, chunks: int, microbatches: int, of_rank: Callable[[int, int, int], Actions], route: str
) -> Timeline:
    actions = tuple(tuple(of_rank(pp, microbatches, rank)) for rank in range(pp))
    assert route in ("ring", "fold", "mirror")
    return Timeline(pp, chunks, microbatches, actions, route)  # type: ignore[arg-type]


# ── One rank ──────────────────────────────────────────────────────────────────


class _Rank:
    """Writes one rank's actions: the next microbatch of each chunk, and the weights put off."""

    def __init__(self, stages: tuple[int, ...], firsts: tuple[int, ...]) -> None:
        self.stages = stages
        self.actions: Actions = []
        self.next_forward = list(firsts)
        self.next_backward = list(firsts)
        self.late: deque[Action] = deque()

    def forward(self, chunk: int) -> None:
        self.actions.append(Action("F", self.stages[chunk], self.next_forward[chunk]))
        self.next_forward[chunk] += 1

    def backward(self, chunk: int, *, split: bool = False) -> None:
        stage, microbatch = self.stages[chunk], self.next_backward[chunk]
        self.next_backward[chunk] += 1
        self.actions.append(Action("I" if split else "B", stage, microbatch))
        if split:
            self.late.append(Action("W", stage, microbatch))

    def weights(self) -> None:
        self.actions.append(self.late.popleft())


def zero_bubble_actions(pp: int, microbatches: int, rank: int) -> Actions:
    """Rank `rank` of ZB-H1: W of microbatch i follows I of microbatch i + rank."""
    _check(pp, microbatches)
    work = _Rank((rank,), (0,))
    warmup = min(pp - rank - 1, microbatches)
    for _ in range(warmup):
        work.forward(0)
    for done in range(microbatches):
        if warmup + done < microbatches:
            work.forward(0)
        work.backward(0, split=True)
        if done >= rank:
            work.weights()
    while work.late:
        work.weights()
    return work.actions


def zbv_actions(pp: int, microbatches: int, rank: int) -> Actions:
    """Rank `rank` of ZB-V; fewer than 2·pp - 1 microbatches leave gaps in the order of so many."""
    _check(pp, microbatches)
    run = max(2 * pp - 1, microbatches)
    work = _Rank((rank, 2 * pp - 1 - rank), (0, 0))

    def both(chunk: int) -> None:
        work.backward(chunk, split=True)
        work.actions.append(work.late.pop())

    for _ in range(2 * (pp - rank) - 1):
        work.forward(0)
    for _ in range(rank):
        work.forward(1)
        work.forward(0)
    for _ in range(pp - rank):
        work.forward(1)
        both(1)
    while work.next_forward[1] < work.next_forward[0] or work.next_forward[0] < run:
        if work.next_forward[0] < run:
            work.forward(0)
        both(0)
        work.forward(1)
        both(1)
    for _ in range(rank):
        work.backward(0, split=True)
        work.backward(1, split=True)
    first = deque(action for action in work.late if action.stage == rank)
    second = deque(action for action in work.late if action.stage != rank)
    for _ in range(pp - rank):
        work.backward(0, split=True)
        first.append(work.late.pop())
        work.actions.append(first.popleft())
    work.actions += [*second, *first]
    return [action for action in work.actions if action.microbatch < microbatches]


def dualpipe_v_actions(pp: int, microbatches: int, rank: int) -> Actions:
    """Rank `rank` of DualPipeV."""
    _check(pp, microbatches, least=2 * pp)
    work = _Rank((rank, 2 * pp - 1 - rank), (0, 0))
    return _dual(work, place=rank, ranks=pp, main=microbatches - 2 * pp + rank + 1)


def dualpipe_actions(pp: int, microbatches: int, rank: int) -> Actions:
    """Rank `rank` of DualPipe; the second half of the microbatches starts at the last rank."""
    _check(pp, microbatches, least=2 * pp)
    if pp % 2 or microbatches % 2:
        raise ValueError(f"dualpipe takes even numbers, not pp = {pp} with {microbatches}")
    half = microbatches // 2
    near, far = (rank, 0), (2 * pp - 1 - rank, half)  # stage and first microbatch, by direction
    if rank >= pp // 2:
        near, far = far, near
    work = _Rank((near[0], far[0]), (near[1], far[1]))
    place = min(rank, pp - 1 - rank)
    return _dual(work, place=place, ranks=pp // 2, main=half - pp + place + 1)


def _dual(work: _Rank, *, place: int, ranks: int, main: int) -> Actions:
    """The eight steps of DualPipe, for the rank at `place` of `ranks` from the end it feeds.

    Chunk 0 is the one whose microbatches come in here, chunk 1 the one that comes back.
    """
    behind = ranks - place - 1
    for _ in range(2 * behind):
        work.forward(0)
    for _ in range(place + 1):
        work.forward(0)
        work.forward(1)
    for _ in range(behind):
        work.backward(1, split=True)
        work.weights()
        work.forward(1)
    for _ in range(main):
        work.forward(0)
        work.backward(1)
        work.forward(1)
        work.backward(0)
    for _ in range(behind):
        work.backward(1)
        work.forward(1)
        work.backward(0)
    split = False
    for step in range(place + 1):
        split = split or (step == (place + 1) // 2 and place % 2 == 1)
        work.backward(1, split=split)
        split = split or (step == (place + 1) // 2 and place % 2 == 0)
        work.backward(0, split=split)
    for _ in range(behind):
        work.weights()
        work.backward(0, split=True)
    for _ in range(place + 1):
        work.weights()
    return work.actions


def _check(pp: int, microbatches: int, least: int = 1) -> None:
    if pp < 1:
        raise ValueError(f"pp = {pp}; the smallest value is 1")
    if microbatches < least:
        raise ValueError(f"microbatches = {microbatches}; the smallest value is {least}")
