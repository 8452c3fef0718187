"""How many microbatches of each chunk a pipeline rank holds when it holds most.

Counted from the schedules' action lists: in closed form where one is known (a test holds it against
the lists), else from one rank's list over as many microbatches as reach the steady state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from parlay.compiler.spec.schema import Setting
from parlay.runtime import timeline_split as split

LISTED: Final = {
    "zero_bubble": split.zero_bubble_actions,
    "zbv": split.zbv_actions,
    "dualpipe_v": split.dualpipe_v_actions,
    "dualpipe": split.dualpipe_actions,
}


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
    return _listed(schedule.name, pp, min(microbatches, 4 * pp), stage, tuple(weights))


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
    few = min(microbatches, 4 * pp)
    return _halves(schedule.name, pp, few, stage, tuple(whole), tuple(late))


@cache
def _halves(
    name: str, pp: int, microbatches: int, stage: int, whole: tuple[int, ...], late: tuple[int, ...]
) -> Moments:
    now, put_off = [0] * len(whole), [0] * len(whole)
    most: dict[tuple[str, int], tuple[int, Halves]] = {}

    def held(moment: str, chunk: int) -> None:
        value = sum(n * each for n, each in zip(now, whole, strict=True))
        value += sum(n * each for n, each in zip(put_off, late, strict=True))
        if value > most.get((moment, chunk), (-1, None))[0]:
            most[moment, chunk] = value, Halves(tuple(now), tuple(put_off))

    for action in LISTED[name](pp, microbatches, stage):
        chunk = action.stage // pp
        match action.kind:
            case "F":
                now[chunk] += 1
                held("F", chunk)
            case "W":
                held("W", chunk)
                put_off[chunk] -= 1
            case kind:
                held(f"before {kind}", chunk)
                now[chunk] -= 1
                put_off[chunk] += kind == "I"
                held(f"after {kind}", chunk)

    def of(moment: str, chunk: int) -> Halves | None:
        return most[moment, chunk][1] if (moment, chunk) in most else None

    chunks = range(len(whole))
    split = [
        most.get(("after I", chunk), (-1,))[0] >= most.get(("after B", chunk), (-1,))[0]
        for chunk in chunks
    ]
    kinds = ["I" if each else "B" for each in split]
    return Moments(
        tuple([of("F", chunk) for chunk in chunks]),
        tuple([of(f"before {kinds[chunk]}", chunk) for chunk in chunks]),
        tuple([of(f"after {kinds[chunk]}", chunk) for chunk in chunks]),
        tuple([of("W", chunk) for chunk in chunks]),
        tuple(split),
    )


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
    turns = {0, last}
    if len(set(weights)) > 1:
        turns |= {*range(0, last + 1, pp), *range((-warmup - 1) % pp, last + 1, pp)}
    for done in sorted(turns):
        forward = min(warmup + 1 + done, total)
        held = tuple(
            _passed(forward, chunk, pp, chunks) - _passed(done, chunks - 1 - chunk, pp, chunks)
            for chunk in range(chunks)
        )
        value = sum(count * weight for count, weight in zip(held, weights, strict=True))
        if value > best[0]:
            best = value, held
    return best[1]


def _passed(visits: int, place: int, pp: int, chunks: int) -> int:
    """Of the first `visits`, those of the chunk that stands at `place` in each round."""
    rounds, rest = divmod(visits, pp * chunks)
    return rounds * pp + min(max(rest - place * pp, 0), pp)


@cache
def _listed(
    name: str, pp: int, microbatches: int, stage: int, weights: tuple[float, ...]
) -> tuple[int, ...]:
    held = [0] * len(weights)
    best: tuple[float, tuple[int, ...]] = (-1.0, tuple(held))
    for action in LISTED[name](pp, microbatches, stage):
        chunk = action.stage // pp
        if action.kind == "F":
            held[chunk] += 1
            value = sum(count * weight for count, weight in zip(held, weights, strict=True))
            if value > best[0]:
                best = value, tuple(held)
        elif action.kind in "BW":
            held[chunk] -= 1
    return best[1]
