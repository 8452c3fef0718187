"""The schedules' action lists by brute force: legal, free of deadlock, idle as published.

`run` is a simulation of its own: it goes round over the ranks and lets each do what its inputs
allow, until nobody can. Closed forms are those of GPipe, PipeDream-Flush, Narayanan et al. 2021,
ZB-H1, ZB-V and table 2 of the DeepSeek-V3 report; the very rows of `published.csv` are held to the
ledger's formulas in `tests/published`, and here to what the ranks would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parlay.compiler.ledger.pipelining import pipelining
from parlay.compiler.ledger.time import bubble
from parlay.compiler.ledger.time.trace import actions
from parlay.compiler.spec.blocks import Parallel
from parlay.compiler.spec.schema import Setting
from parlay.runtime import timeline, timeline_split
from parlay.runtime.timeline import Action, Timeline

Blocks = list[tuple[Action, ...]]
SINGLE = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
EVEN: dict[str, Callable[[int, int], Timeline]] = {
    "zero_bubble": timeline_split.zero_bubble,
    "zbv": timeline_split.zbv,
    "dualpipe_v": timeline_split.dualpipe_v,
    "dualpipe": timeline_split.dualpipe,
}


def one_by_one(line: Sequence[Action]) -> Blocks:
    return [(action,) for action in line]


def beside(line: Sequence[Action]) -> Blocks:
    """A forward with the whole backward right after it is one block: DualPipe's F&B."""
    found: Blocks = []
    for action in line:
        last = found[-1] if found else ()
        if action.kind == "B" and len(last) == 1 and last[0].kind == "F":
            found[-1] = (*last, action)
        else:
            found.append((action,))
    return found


def run(
    line: Timeline,
    cost: Callable[[tuple[Action, ...]], float],
    blocks: Callable[[Sequence[Action]], Blocks] = one_by_one,
) -> list[float]:
    """Idle time of every rank from the first block to the last; fails where they deadlock."""
    queues = [blocks(mine) for mine in line.actions]
    at, free = [0] * line.pp, [0.0] * line.pp
    done: dict[tuple[str, int, int], float] = {}

    def inputs(action: Action) -> list[tuple[str, int, int]]:
        kind, stage, microbatch = action
        first, last = line.is_first(stage), line.is_last(stage)
        if kind == "F":
            return [] if first else [("F", stage - 1, microbatch)]
        if kind == "W":
            return [("B", stage, microbatch)]
        after = [] if last else [("B", stage + 1, microbatch)]
        return [("F", stage, microbatch), *after]

    moved = True
    while moved:
        moved = False
        for rank in range(line.pp):
            while at[rank] < len(queues[rank]):
                block = queues[rank][at[rank]]
                own = {("F" if a.kind == "F" else "B", a.stage, a.microbatch) for a in block}
                needs = [need for a in block for need in inputs(a) if need not in own]
                if any(need not in done for need in needs):
                    break
                start = max([free[rank], *(done[need] for need in needs)])
                free[rank] = start + cost(block)
                for action in block:
                    if action.kind != "W":
                        kind = "F" if action.kind == "F" else "B"
                        done[kind, action.stage, action.microbatch] = free[rank]
                at[rank] += 1
                moved = True
    assert at == [len(mine) for mine in queues], "every rank waits"
    busy = [sum(cost(block) for block in mine) for mine in queues]
    return [max(free) - mine for mine in busy]


def alone(block: tuple[Action, ...]) -> float:
    return sum(SINGLE[action.kind] for action in block)


# ── Legal ─────────────────────────────────────────────────────────────────────


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, Timeline]:
    """Any schedule with degrees that it allows: pp 1 to 8."""
    name = draw(st.sampled_from(["gpipe", "one_f_one_b", "interleaved", *EVEN]))
    pp = draw(st.integers(1, 8))
    if name == "interleaved":
        chunks, rounds = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        return name, timeline.interleaved(pp, chunks, pp * rounds)
    if name == "dualpipe":
        pp = 2 * -(-pp // 2)
        return name, timeline_split.dualpipe(pp, 2 * draw(st.integers(pp, 2 * pp + 3)))
    if name == "dualpipe_v":
        return name, timeline_split.dualpipe_v(pp, draw(st.integers(2 * pp, 4 * pp + 3)))
    made = EVEN.get(name) or getattr(timeline, name)
    return name, made(pp, draw(st.integers(1, 24)))


@settings(max_examples=settings.default.max_examples * 3)
@given(lines())
def test_every_list_is_legal(drawn: tuple[str, Timeline]) -> None:
    name, line = drawn
    counts = Counter(action for mine in line.actions for action in mine)
    assert not counts or max(counts.values()) == 1
    for stage in range(line.stages):
        mirrored = line.route == "mirror"
        half = line.microbatches // 2
        some = range(half) if stage < line.pp else range(half, line.microbatches)
        for microbatch in some if mirrored else range(line.microbatches):
            kinds = [k for k in "FBIW" if Action(k, stage, microbatch) in counts]  # type: ignore[arg-type]
            assert kinds in (["F", "B"], ["F", "I", "W"]), (name, stage, microbatch)
    for rank, mine in enumerate(line.actions):
        assert all(line.rank_of(action.stage) == rank for action in mine)
    passes = line.pp * (1 if line.route == "mirror" else line.chunks) * line.microbatches
    assert sum(1 for action in counts if action.kind == "F") == passes
    run(line, alone)  # a weight's gradient never before its input's, no ring of waits


@settings(max_examples=settings.default.max_examples * 3 // 5)
@given(lines(), st.sampled_from([(1.0, 2.0, 1.0), (2.0, 5.0, 2.0), (3.0, 4.0, 1.5)]))
def test_playing_a_list_gives_what_ranks_would_do(
    drawn: tuple[str, Timeline], costs: tuple[float, float, float]
) -> None:
    _, line = drawn
    f, b, w = costs
    cost = {"F": f, "B": b, "I": b - w, "W": w}
    ends = line.play(lambda action: cost[action.kind])
    last = max((mine[-1] for mine in ends if mine), default=0.0)
    idle = [last - sum(cost[a.kind] for a in mine) for mine in line.actions]
    assert run(line, lambda block: sum(cost[a.kind] for a in block)) == pytest.approx(idle)


# ── Closed forms ──────────────────────────────────────────────────────────────

FORMS: dict[str, Callable[[int], float]] = {
    # Idle time of a rank in forwards of a whole stage: F = 1, B = 2, W = 1, F&B = 3.
    "gpipe": lambda p: (p - 1) * 3,
    "one_f_one_b": lambda p: (p - 1) * 3,
    "interleaved(2)": lambda p: (p - 1) * 3 / 2,
    "interleaved(4)": lambda p: (p - 1) * 3 / 4,
    "zero_bubble": lambda p: (p - 1) * (1 + 2 - 2),
    "zbv": lambda p: (p - 1) / 2,
    "dualpipe_v": lambda p: (p - 1) * (3 + 2 - 3) / 2,
    "dualpipe": lambda p: (p / 2 - 1) * (3 + 2 - 3),
}


def parallel(name: str, pp: int) -> Parallel:
    base, _, chunks = name.rstrip(")").partition("(")
    options = {"chunks": int(chunks)} if chunks else {}
    return Parallel(pp=pp, tp=1, cp=1, dp=1, schedule=Setting(base, options))


@pytest.mark.parametrize("pp", [2, 4, 6, 8])
@pytest.mark.parametrize("rounds", [2, 4])
@pytest.mark.parametrize("name", FORMS)
def test_formula_timeline_and_paper_agree(name: str, pp: int, rounds: int) -> None:
    """Stages are even. DualPipe's pairs end together: played one after the other, they would hand
    their forward on earlier and idle half as long as its authors say."""
    shape, m = parallel(name, pp), pp * rounds
    line = actions(shape, m)
    paired = name.startswith("dualpipe")
    part = 1.0 if name == "dualpipe" else 1.0 / line.chunks
    idle = [part * each for each in run(line, alone, beside if paired else one_by_one)]
    published = FORMS[name](pp)
    assert idle == pytest.approx([published] * pp)
    assert pipelining(shape, m).idle == pytest.approx(published)
    _, waits = bubble.step(shape.schedule, [3.0] * pp, m)
    assert waits == pytest.approx(published)
    share = published / (published + 3 * m)
    assert pipelining(shape, m).bubble == pytest.approx(share)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("costs", [(1, 2, 1, 2), (2, 4, 2, 5), (2, 5, 2, 6), (3, 5, 2, 8)])
def test_dualpipe_at_any_times(pp: int, costs: tuple[float, float, float, float]) -> None:
    """(p/2 - 1)(F&B + B - 3W) whatever F, B, W and F&B are; `dualpipe_v` as on twice the ranks."""
    f, b, w, both = costs
    cost = {"F": f, "B": b, "I": b - w, "W": w}

    def took(block: tuple[Action, ...]) -> float:
        return both if len(block) == 2 else cost[block[0].kind]

    each = both + b - 3 * w
    straight = timeline_split.dualpipe(pp, 4 * pp)
    assert max(run(straight, took, beside)) == pytest.approx((pp / 2 - 1) * each)
    folded = timeline_split.dualpipe_v(pp, 4 * pp)
    assert max(run(folded, took, beside)) == pytest.approx((pp - 1) * each)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("costs", [(1, 2, 1), (2, 4, 1.5), (3, 5, 2)])
def test_zero_bubble_at_any_times(pp: int, costs: tuple[float, float, float]) -> None:
    f, b, w = costs
    cost = {"F": f, "B": b, "I": b - w, "W": w}
    line = timeline_split.zero_bubble(pp, 4 * pp)
    idle = run(line, lambda block: cost[block[0].kind])
    assert max(idle) == pytest.approx((pp - 1) * (f + b - 2 * w))
