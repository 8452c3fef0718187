"""How many microbatches of each chunk a pipeline rank holds when it holds most.

Counted from the order that the schedule gives one rank: in closed form where one is known (a test
holds it against every action), else part by part, over as many microbatches as reach the steady
state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import mul
from typing import Final, NamedTuple

from parlay.compiler.spec.schema import Setting
from parlay.runtime import timeline_split as split

ORDERS: Final = {
    "zero_bubble": split.zero_bubble_order,
    "zbv": split.zbv_order,
    "dualpipe_v": split.dualpipe_v_order,
    "dualpipe": split.dualpipe_order,
}

ENOUGH: Final = 2
"""Microbatches a rank after which an order holds nothing that it did not hold before."""


def in_flight(
    schedule: Setting, *, pp: int, microbatches: int, stage: int, weights: Sequence[float]
) -> tuple[int, ...]:
    """Microbatches of each chunk of pipeline rank `stage` at the moment of most bytes.

    `weights` are bytes of one microbatch by chunk. gpipe: all m; 1F1B: min(m, pp - r); interleaved:
    2(pp - r - 1) + (v - 1)·pp + 1 pairs of microbatch and chunk.
    """
    if pp == 1 and schedule.name != "gpipe" and len(weights) == 1:
        return (1,)
    match schedule.name:
        case "gpipe":
            return (microbatches,)
        case "one_f_one_b":
            return (min(microbatches, pp - stage),)
        case "interleaved":
            return _interleaved(pp, microbatches, stage, tuple(weights))
    return _listed(schedule.name, pp, min(microbatches, ENOUGH * pp), stage, tuple(weights))


class Halves(NamedTuple):
    """Microbatches of each chunk between their forward and their backward, and those whose weight
    gradients are put off."""

    whole: tuple[int, ...]
    late: tuple[int, ...]


class Moments(NamedTuple):
    """What a rank holds when it holds most, by chunk: after a forward of the chunk, before and
    after a backward, before the weight gradients that one has put off. None where there is none;
    `splits` says whether the backward before and after which it holds most puts them off."""

    forward: tuple[Halves | None, ...]
    before: tuple[Halves | None, ...]
    after: tuple[Halves | None, ...]
    weights: tuple[Halves | None, ...]
    splits: tuple[bool, ...]


def halves(
    schedule: Setting,
    *,
    pp: int,
    microbatches: int,
    stage: int,
    whole: Sequence[int],
    late: Sequence[int],
) -> Moments:
    """The moments of pipeline rank `stage` under a schedule that splits the backward.

    `whole` and `late` are bytes of one microbatch by chunk, before and after the first half.
    """
    few = min(microbatches, ENOUGH * pp)
    return _halves(schedule.name, pp, few, stage, tuple(whole), tuple(late))


State = tuple[int, ...]
"""Microbatches by chunk, first those that are whole, then those whose weights are put off."""


def _fullest(states: Sequence[State], weights: Sequence[float]) -> State | None:
    """The first of the states with most bytes; None where there is none."""
    if len(states) < 2:
        return states[0] if states else None
    values = [sum(map(mul, state, weights)) for state in states]
    return states[values.index(max(values))]


@lru_cache(maxsize=4096)
def _halves(
    name: str, pp: int, microbatches: int, stage: int, whole: tuple[int, ...], late: tuple[int, ...]
) -> Moments:
    states, weights, chunks = _states(name, pp, microbatches, stage), whole + late, len(whole)

    def most(moment: str, chunk: int) -> State | None:
        return _fullest(states.get((moment, chunk), ()), weights)

    rows: list[tuple[State | None, ...]] = []
    splits = []
    for chunk in range(chunks):
        split, after, other = True, most("after I", chunk), most("after B", chunk)
        if after is None or (
            other is not None and sum(map(mul, other, weights)) > sum(map(mul, after, weights))
        ):
            split, after = False, other
        before = most("before I" if split else "before B", chunk)
        rows.append((most("F", chunk), before, after, most("W", chunk)))
        splits.append(split)
    found = [
        tuple([each and Halves(each[:chunks], each[chunks:]) for each in column])
        for column in zip(*rows, strict=True)
    ]
    return Moments(found[0], found[1], found[2], found[3], tuple(splits))


FIELD: Final = 20
"""Bits of a count in a state that is one number; the top one stays free for `_undominated`."""


@cache
def _states(
    name: str, pp: int, microbatches: int, stage: int
) -> Mapping[tuple[str, int], Sequence[State]]:
    """What one rank holds after a forward of a chunk (`F`), before and after either kind of
    its backwards, and before weight gradients that were put off (`W`); `held` after any forward,
    whether whole or put off. Without those that hold no more of anything than another one does."""
    order = ORDERS[name](pp, microbatches, stage)
    places = [each // pp for each in order.stages]
    chunks = len(places)
    whole = [1 << FIELD * place for place in places]
    late = [each << FIELD * chunks for each in whole]
    moments = ("F", "before I", "after I", "before B", "after B", "W")
    found: dict[str, list[dict[int, None]]] = {
        moment: [{} for _ in range(chunks)] for moment in moments
    }
    # By the order's chunks, which are those of the model or, at the far end of a mirror, not.
    forward, before_first, after_first, before, after, weights = (
        [row[place] for place in places] for row in found.values()
    )
    forwards: dict[int, None] = {}
    now = 0
    for times, steps in order.parts:
        # What a part changes, it changes by as much each time: most is held the first or last time.
        start = now
        for time in range(min(times, 2)):
            if time:
                now += (times - 2) * (now - start)
            for kind, chunk in steps:
                if kind == "F":
                    now += whole[chunk]
                    forward[chunk][now] = forwards[now] = None
                elif kind == "W":
                    weights[chunk][now] = None
                    now -= late[chunk]
                elif kind == "I":
                    before_first[chunk][now] = None
                    now += late[chunk] - whole[chunk]
                    after_first[chunk][now] = None
                else:
                    before[chunk][now] = None
                    now -= whole[chunk]
                    after[chunk][now] = None
    low = (1 << FIELD * chunks) - 1
    held = dict.fromkeys((each & low) + (each >> FIELD * chunks) for each in forwards)
    return {
        (moment, chunk): _undominated(states, 2 * chunks)
        for moment, row in found.items()
        for chunk, states in enumerate(row)
    } | {("held", 0): _undominated(held, chunks)}


def _undominated(states: Iterable[int], fields: int) -> list[State]:
    """Those that hold more of something than any other one, as tuples."""
    top = _top_bits(fields)
    front: list[int] = []
    # The remainder is the sum of all counts. One that holds more in all comes first, so that only
    # what is kept can hold more of anything; a count that is larger borrows from its top bit.
    for one in sorted(states, key=lambda state: state % ((1 << FIELD) - 1), reverse=True):
        for other in front:
            if (other + top - one) & top == top:
                break
        else:
            front.append(one)
    mask = (1 << FIELD) - 1
    return [tuple([state >> FIELD * field & mask for field in range(fields)]) for state in front]


@cache
def _top_bits(fields: int) -> int:
    return sum(1 << FIELD * field + FIELD - 1 for field in range(fields))


@cache
def _interleaved(
    pp: int, microbatches: int, stage: int, weights: tuple[float, ...]
) -> tuple[int, ...]:
    """After `warmup` + 1 + j forwards and j backwards, at the j where the order turns."""
    chunks = len(weights)
    warmup = min(2 * (pp - stage - 1) + (chunks - 1) * pp, pp * chunks * (microbatches // pp))
    total = chunks * microbatches
    best: tuple[float, tuple[int, ...]] = (-1.0, ())
    last = min(pp * chunks, max(0, total - warmup - 1))
    turns = {0}  # where chunks weigh the same, no backward goes before most is held
    if len(set(weights)) > 1:
        turns = {0, last, *range(0, last + 1, pp), *range((-warmup - 1) % pp, last + 1, pp)}
    ahead, behind = _passed(pp, chunks)
    for done in sorted(turns):
        rounds, rest = divmod(min(warmup + 1 + done, total), pp * chunks)
        back, left = divmod(done, pp * chunks)
        more = (rounds - back) * pp
        held = tuple([more + n - less for n, less in zip(ahead[rest], behind[left], strict=True)])
        value = sum(map(mul, held, weights))
        if value > best[0]:
            best = value, held
    return best[1]


Visits = tuple[tuple[int, ...], ...]


@cache
def _passed(pp: int, chunks: int) -> tuple[Visits, Visits]:
    """Of the first n visits of a round, those of each chunk: of forwards, whose chunks come in
    order, and of backwards, whose last chunk comes first; pp of one, then pp of the next."""
    ahead = tuple(
        tuple([min(max(n - place * pp, 0), pp) for place in range(chunks)])
        for n in range(pp * chunks)
    )
    return ahead, tuple(tuple(reversed(row)) for row in ahead)


@lru_cache(maxsize=4096)
def _listed(
    name: str, pp: int, microbatches: int, stage: int, weights: tuple[float, ...]
) -> tuple[int, ...]:
    """Of whole backwards: what a split one puts off is held until its weight gradients are made."""
    most = _fullest(_states(name, pp, microbatches, stage)["held", 0], weights)
    return most if most is not None else (0,) * len(weights)
