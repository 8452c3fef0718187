"""Schedules with a split backward: complete, able to run, and with the published idle time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from parlay.runtime.timeline import Timeline, one_f_one_b
from parlay.runtime.timeline_split import dualpipe, dualpipe_v, zbv, zero_bubble

CASES = [
    (zero_bubble, 8, 16),
    (zero_bubble, 4, 2),
    (zero_bubble, 1, 3),
    (zbv, 4, 9),
    (zbv, 4, 3),
    (zbv, 1, 3),
    (dualpipe_v, 8, 16),
    (dualpipe_v, 1, 4),
    (dualpipe, 8, 16),
    (dualpipe, 2, 4),
]


def idle(timeline: Timeline, *, forward: float, backward: float, weights: float) -> list[float]:
    """Idle time of each rank."""
    costs = {"F": forward, "B": backward, "I": backward - weights, "W": weights}
    ends = timeline.play(lambda action: costs[action.kind])
    whole = max(end[-1] for end in ends)
    return [whole - sum(costs[a.kind] for a in actions) for actions in timeline.actions]


@pytest.mark.parametrize(("schedule", "pp", "microbatches"), CASES)
def test_every_stage_sees_every_microbatch_once(
    schedule: Callable[[int, int], Timeline], pp: int, microbatches: int
) -> None:
    timeline = schedule(pp, microbatches)
    counts = Counter(action for actions in timeline.actions for action in actions)
    assert max(counts.values()) == 1
    passes = timeline.pp * microbatches * (2 if timeline.route == "fold" else 1)
    kinds = Counter(action.kind for action in counts)
    assert kinds["F"] == kinds["B"] + kinds["I"] == passes
    assert kinds["I"] == kinds["W"]
    for rank, actions in enumerate(timeline.actions):
        place = {action: index for index, action in enumerate(actions)}
        for action in actions:
            assert timeline.rank_of(action.stage) == rank
            if action.kind == "W":
                assert place[action._replace(kind="I")] < place[action]


@pytest.mark.parametrize(("schedule", "pp", "microbatches"), CASES)
def test_both_ends_of_a_message_are_in_its_round(
    schedule: Callable[[int, int], Timeline], pp: int, microbatches: int
) -> None:
    timeline = schedule(pp, microbatches)
    rounds = [timeline.rounds(rank) for rank in range(pp)]
    sent = {(r.slot, m) for turns in rounds for r in turns for m in r.sends}
    received = {(r.slot, m) for turns in rounds for r in turns for m in r.receives}
    assert sent == received


def test_zero_bubble_idles_as_published() -> None:
    # (pp - 1)(F + B - 2W) with B the whole backward: 7 · (1 + 2 - 2) = 7, where 1F1B has 21.
    assert idle(zero_bubble(8, 32), forward=1, backward=2, weights=1) == [7.0] * 8
    assert idle(one_f_one_b(8, 32), forward=1, backward=2, weights=1) == [21.0] * 8
    assert idle(zero_bubble(4, 8), forward=2, backward=4, weights=1.5) == [9.0] * 4


def test_memory_as_published() -> None:
    assert {zero_bubble(8, 32).in_flight(rank) for rank in range(8)} == {8}
    assert {zbv(8, 32).in_flight(rank) for rank in range(8)} == {16}  # halves of a stage
    assert {dualpipe(8, 32).in_flight(rank) for rank in range(8)} == {9}  # pp + 1


def test_dualpipe_refuses_what_it_cannot_order() -> None:
    with pytest.raises(ValueError, match="even"):
        dualpipe(3, 8)
    with pytest.raises(ValueError, match="smallest value is 8"):
        dualpipe_v(4, 7)
