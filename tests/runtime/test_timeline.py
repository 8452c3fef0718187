"""Schedules: complete, in a possible order, free of deadlock, with the bubble the formulas give."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parlay.runtime.timeline import Action, Timeline, gpipe, interleaved, one_f_one_b


@st.composite
def timelines(draw):
    pp = draw(st.integers(1, 6))
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    if schedule == "interleaved":
        return interleaved(pp, draw(st.integers(1, 4)), pp * draw(st.integers(1, 4)))
    return {"gpipe": gpipe, "1f1b": one_f_one_b}[schedule](pp, draw(st.integers(1, 12)))


@given(timelines())
def test_every_microbatch_passes_every_stage_once_each_way(timeline):
    found = Counter(action for actions in timeline.actions for action in actions)
    assert found == Counter(
        Action(kind, stage, i)
        for kind in "FB"
        for stage in range(timeline.stages)
        for i in range(timeline.microbatches)
    )
    for rank, actions in enumerate(timeline.actions):
        assert {timeline.rank_of(action.stage) for action in actions} == {rank}
        assert {timeline.chunk_of(action.stage) for action in actions} == set(
            range(timeline.chunks)
        )


@given(timelines())
def test_an_action_runs_after_what_it_needs(timeline):
    slot = {
        action: slot
        for actions, slots in zip(timeline.actions, timeline.slots, strict=True)
        for action, slot in zip(actions, slots, strict=True)
    }
    for action in slot:
        _, stage, i = action
        if action.kind == "F":
            needs = [Action("F", stage - 1, i)] if stage else []
        else:
            needs = [Action("F", stage, i)]
            needs += [Action("B", stage + 1, i)] if stage + 1 < timeline.stages else []
        assert all(slot[need] < slot[action] for need in needs)


@given(timelines())
def test_blocking_ranks_never_wait_in_a_ring(timeline):
    """Each rank posts its round as one batch and stops until both ends of all of it are posted."""
    rounds = [timeline.rounds(rank) for rank in range(timeline.pp)]
    at = [0] * timeline.pp
    posted = [set() for _ in rounds]
    while busy := [rank for rank in range(timeline.pp) if at[rank] < len(rounds[rank])]:
        for rank in busy:
            turn = rounds[rank][at[rank]]
            need = turn.action and timeline.needs(turn.action)
            if need is not None and timeline.rank_of(need.stage) != rank:
                assert timeline.output(need) in posted[rank]  # received in an earlier round
            posted[rank] |= {*turn.sends, *turn.receives}
        free = [
            rank
            for rank in busy
            if all(
                message in posted[message.source] & posted[message.target]
                for message in rounds[rank][at[rank]].sends + rounds[rank][at[rank]].receives
            )
        ]
        assert free, "every rank waits"
        for rank in free:
            at[rank] += 1


@given(timelines())
def test_both_ends_of_a_message_are_in_one_round_and_need_no_tag(timeline):
    sends, receives = Counter(), Counter()
    for rank in range(timeline.pp):
        for turn in timeline.rounds(rank):
            assert len(turn.sends) <= 1
            assert all(message.source == rank for message in turn.sends)
            assert all(message.target == rank for message in turn.receives)
            sources = [message.source for message in turn.receives]
            assert len(set(sources)) == len(sources)
            sends.update((turn.slot, message) for message in turn.sends)
            receives.update((turn.slot, message) for message in turn.receives)
    assert sends == receives
    borders = 0 if timeline.pp == 1 else timeline.stages - 1
    assert sends.total() == 2 * borders * timeline.microbatches


@given(st.integers(1, 8), st.integers(1, 24))
def test_bubble_and_microbatches_in_flight_of_one_chunk(pp, m):
    ideal = (pp - 1) / (m + pp - 1)
    assert gpipe(pp, m).bubble() == pytest.approx(ideal)
    assert one_f_one_b(pp, m).bubble() == pytest.approx(ideal)
    for rank in range(pp):
        assert gpipe(pp, m).in_flight(rank) == m
        assert one_f_one_b(pp, m).in_flight(rank) == min(m, pp - rank)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_bubble_and_microbatches_in_flight_interleaved(pp, v, groups):
    m = pp * groups
    timeline = interleaved(pp, v, m)
    assert timeline.bubble() == pytest.approx((pp - 1) / (v * m + pp - 1))
    for rank in range(pp):
        warmup = 2 * (pp - rank - 1) + (v - 1) * pp
        assert timeline.in_flight(rank) == min(v * m, warmup + 1)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_interleaved_takes_chunks_in_the_order_of_megatron(pp, v, groups):
    """`get_model_chunk_id` of Megatron-LM: iteration k is of chunk k % (pp·v) // pp."""
    timeline = interleaved(pp, v, pp * groups)
    for rank, actions in enumerate(timeline.actions):
        for kind in "FB":
            mine = [action for action in actions if action.kind == kind]
            for k, action in enumerate(mine):
                chunk = k % (pp * v) // pp
                chunk = chunk if kind == "F" else v - 1 - chunk
                microbatch = k // (pp * v) * pp + k % pp
                assert action == (kind, chunk * pp + rank, microbatch)


def test_one_f_one_b_written_out():
    first, last = one_f_one_b(2, 3).actions
    assert [f"{kind}{i}" for kind, _, i in first] == ["F0", "F1", "B0", "F2", "B1", "B2"]
    assert [f"{kind}{i}" for kind, _, i in last] == ["F0", "B0", "F1", "B1", "F2", "B2"]


def test_a_message_takes_time_and_a_slow_stage_holds_up_the_others():
    timeline = one_f_one_b(2, 1)
    assert timeline.play(lambda action: 1.0, delay=0.5) == ((1.0, 5.0), (2.5, 3.5))
    slow = timeline.play(lambda action: 3.0 if action.stage == 1 else 1.0)
    assert slow == ((1.0, 8.0), (4.0, 7.0))


def test_an_order_that_cannot_run_is_named():
    stuck = Timeline(1, 1, 1, ((Action("B", 0, 0),),))
    assert stuck.slots  # alone it may: only other stages are waited for
    crossed = Timeline(
        2, 1, 1, ((Action("B", 0, 0), Action("F", 0, 0)), (Action("F", 1, 0), Action("B", 1, 0)))
    )
    with pytest.raises(ValueError, match="for ever"):
        crossed.play(lambda action: 1.0)


def test_a_deep_pipeline_is_laid_out_fast():
    start = time.process_time()
    timeline = one_f_one_b(64, 512)
    assert len(timeline.rounds(63)) >= 1024
    assert timeline.in_flight(0) == 64
    assert time.process_time() - start < 60


@pytest.mark.parametrize("wrong", [lambda: interleaved(4, 2, 6), lambda: gpipe(0, 1)])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"multiple of pp = 4|smallest value is 1"):
        wrong()
