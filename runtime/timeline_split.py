"""Pipeline schedules that split the backward: weight gradients fill idle time. Pure Python.

`I` is the gradient of a stage's input, `W` that of its weights; a rank may put `W` off, since no
other rank waits for it. Each schedule gives the order of one rank as a few parts, each done so many
times over, and a `Timeline` of all ranks' actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from parlay.runtime.timeline import Action, Kind, Timeline

Step = tuple[Kind, int]
"""What is done, and of which of the rank's chunks: the next microbatch of both."""

F0: Step = ("F", 0)
F1: Step = ("F", 1)
B0: Step = ("B", 0)
B1: Step = ("B", 1)
I0: Step = ("I", 0)
I1: Step = ("I", 1)
W0: Step = ("W", 0)
W1: Step = ("W", 1)


class Part(NamedTuple):
    """Steps that are done `times` times over."""

    times: int
    steps: tuple[Step, ...]


class Order(NamedTuple):
    """In which order one rank works: the stage and the first microbatch of each of its chunks, and
    parts one after the other. Weight gradients of a chunk are made in the order of its backwards.
    """

    stages: tuple[int, ...]
    firsts: tuple[int, ...]
    parts: tuple[Part, ...]

    def actions(self) -> list[Action]:
        """Every step as an action."""
        forwards, backwards = list(self.firsts), list(self.firsts)
        late: list[deque[int]] = [deque() for _ in self.stages]
        found = []
        for times, steps in self.parts:
            for _ in range(times):
                for kind, chunk in steps:
                    if kind == "W":
                        microbatch = late[chunk].popleft()
                    else:
                        counts = forwards if kind == "F" else backwards
                        microbatch = counts[chunk]
                        counts[chunk] += 1
                    if kind == "I":
                        late[chunk].append(microbatch)
                    found.append(Action(kind, self.stages[chunk], microbatch))
        return found


def zero_bubble(pp: int, microbatches: int) -> Timeline:
    """ZB-H1 (arXiv:2401.10241): 1F1B whose rank r puts r weight gradients off to the end.

    Before: pp - 1 idle slots of F + B. After: of F + I - W, at the memory of 1F1B's first rank.
    """
    return _timeline(pp, 1, microbatches, zero_bubble_order, "ring")


def zbv(pp: int, microbatches: int) -> Timeline:
    """ZB-V (arXiv:2405.15362): two chunks a rank, the second on the way back.

    No idle time but the start where F, I and W take the same; every rank holds 2·pp half stages.
    """
    return _timeline(pp, 2, microbatches, zbv_order, "fold")


def dualpipe_v(pp: int, microbatches: int) -> Timeline:
    """DualPipe cut in half: the chunks of ZB-V in DualPipe's order, at least 2·pp microbatches."""
    return _timeline(pp, 2, microbatches, dualpipe_v_order, "fold")


def dualpipe(pp: int, microbatches: int) -> Timeline:
    """DualPipe (arXiv:2412.19437): half of the microbatches from each end, two copies of the model.

    pp is even, and so are the microbatches, of which there are at least 2·pp. A forward and a
    backward that run beside each other stand one after the other, forward first.
    """
    return _timeline(pp, 2, microbatches, dualpipe_order, "mirror")


def _timeline(
    pp: int, chunks: int, microbatches: int, of_rank: Callable[[int, int, int], Order], route: str
) -> Timeline:
    actions = tuple(tuple(of_rank(pp, microbatches, rank).actions()) for rank in range(pp))
    assert route in ("ring", "fold", "mirror")
    return Timeline(pp, chunks, microbatches, actions, route)  # type: ignore[arg-type]


# ── One rank ──────────────────────────────────────────────────────────────────


def zero_bubble_order(pp: int, microbatches: int, rank: int) -> Order:
    """Rank `rank` of ZB-H1: W of microbatch i follows I of microbatch i + rank."""
    _check(pp, microbatches)
    warmup = min(pp - rank - 1, microbatches)
    steady, late = microbatches - warmup, min(rank, microbatches)
    kinds: tuple[tuple[int, tuple[Step, ...]], ...] = ((steady, (F0, I0)), (warmup, (I0,)))
    parts = [Part(warmup, (F0,))]
    skipped = late  # backwards whose weight gradients wait
    for times, steps in kinds:
        without = min(times, skipped)
        skipped -= without
        parts += [Part(without, steps), Part(times - without, (*steps, W0))]
    return Order((rank,), (0,), (*parts, Part(late, (W0,))))


def zbv_order(pp: int, microbatches: int, rank: int) -> Order:
    """Rank `rank` of ZB-V; fewer than 2·pp - 1 microbatches leave gaps in the order of so many."""
    _check(pp, microbatches)
    run = max(2 * pp - 1, microbatches)
    behind = pp - rank
    parts = (
        Part(2 * behind - 1, (F0,)),
        Part(rank, (F1, F0)),
        Part(behind, (F1, I1, W1)),
        Part(run - pp - behind + 1, (F0, I0, W0, F1, I1, W1)),
        Part(behind - 1, (I0, W0, F1, I1, W1)),
        Part(rank, (I0, I1)),
        Part(behind, (I0, W0)),
        Part(rank, (W1,)),
        Part(rank, (W0,)),
    )
    order = Order((rank, 2 * pp - 1 - rank), (0, 0), parts)
    if microbatches == run:
        return order
    steps = tuple(
        (kind, int(stage != rank))
        for kind, stage, microbatch in order.actions()
        if microbatch < microbatches
    )
    return order._replace(parts=(Part(1, steps),))


def dualpipe_v_order(pp: int, microbatches: int, rank: int) -> Order:
    """Rank `rank` of DualPipeV."""
    _check(pp, microbatches, least=2 * pp)
    parts = _dual(place=rank, ranks=pp, main=microbatches - 2 * pp + rank + 1)
    return Order((rank, 2 * pp - 1 - rank), (0, 0), parts)


def dualpipe_order(pp: int, microbatches: int, rank: int) -> Order:
    """Rank `rank` of DualPipe; the second half of the microbatches starts at the last rank."""
    _check(pp, microbatches, least=2 * pp)
    if pp % 2 or microbatches % 2:
        raise ValueError(f"dualpipe takes even numbers, not pp = {pp} with {microbatches}")
    half = microbatches // 2
    near, far = (rank, 0), (2 * pp - 1 - rank, half)  # stage and first microbatch, by direction
    if rank >= pp // 2:
        near, far = far, near
    place = min(rank, pp - 1 - rank)
    parts = _dual(place=place, ranks=pp // 2, main=half - pp + place + 1)
    return Order((near[0], far[0]), (near[1], far[1]), parts)


def _dual(*, place: int, ranks: int, main: int) -> tuple[Part, ...]:
    """The eight steps of DualPipe, for the rank at `place` of `ranks` from the end it feeds.

    Chunk 0 is the one whose microbatches come in here, chunk 1 the one that comes back. The last
    `place` + 1 backwards before the seventh step put their weight gradients off, in turn of both
    chunks and the last of chunk 0; the seventh step makes one for each that it puts off.
    """
    behind = ranks - place - 1
    whole, odd = divmod(place + 1, 2)
    put_off = [*([W0] * odd), *([W1, W0] * whole), *([W0] * behind)]
    return (
        Part(2 * behind, (F0,)),
        Part(place + 1, (F0, F1)),
        Part(behind, (I1, W1, F1)),
        Part(main, (F0, B1, F1, B0)),
        Part(behind, (B1, F1, B0)),
        Part(whole, (B1, B0)),
        Part(odd, (B1, I0)),
        Part(whole, (I1, I0)),
        Part(1, tuple(step for made in put_off[:behind] for step in (made, I0))),
        Part(1, tuple(put_off[behind:])),
    )


def _check(pp: int, microbatches: int, least: int = 1) -> None:
    if pp < 1:
        raise ValueError(f"pp = {pp}; the smallest value is 1")
    if microbatches < least:
        raise ValueError(f"microbatches = {microbatches}; the smallest value is {least}")
