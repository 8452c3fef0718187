"""The closed forms of a pipeline's time against the action lists that the runtime executes."""

from __future__ import annotations

import pytest
from parlay.compiler.ledger.time import bubble
from parlay.compiler.spec.schema import Setting
from parlay.runtime import timeline, timeline_split

EVEN = [(p, m) for p in (1, 2, 4, 8) for m in (8, 16, 32)]


@pytest.mark.parametrize(("p", "m"), EVEN)
@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b"])
def test_even_stages_are_exact(name: str, p: int, m: int) -> None:
    played = getattr(timeline, name)(p, m).play(lambda a: 1.0 if a.kind == "F" else 2.0)
    step, waits = bubble.step(Setting(name), [3.0] * p, m)
    assert step == pytest.approx(max(ends[-1] for ends in played))
    assert waits == pytest.approx(3.0 * (p - 1))


@pytest.mark.parametrize(("p", "m"), EVEN)
@pytest.mark.parametrize("chunks", [2, 3])
def test_interleaved_waits_a_chunk(p: int, m: int, chunks: int) -> None:
    played = timeline.interleaved(p, chunks, m).play(lambda a: 1.0 if a.kind == "F" else 2.0)
    schedule = Setting("interleaved", {"chunks": chunks})
    step, _ = bubble.step(schedule, [3.0 * chunks] * p, m)
    assert step == pytest.approx(max(ends[-1] for ends in played))


@pytest.mark.parametrize(("p", "m"), [(2, 8), (4, 16), (8, 32)])
def test_zero_bubble_waits_a_third(p: int, m: int) -> None:
    played = timeline_split.zero_bubble(p, m).play(lambda a: 1.0)
    step, waits = bubble.step(Setting("zero_bubble"), [3.0] * p, m)
    assert waits == pytest.approx(p - 1)
    assert step == pytest.approx(max(ends[-1] for ends in played), rel=0.02)


@pytest.mark.parametrize(
    "costs", [(3.0, 4.0, 3.0, 3.0), (3.0, 3.0, 3.0, 5.0), (2.0, 3.0, 3.0, 2.0)]
)
def test_uneven_stages_follow_the_slowest(costs: tuple[float, ...]) -> None:
    played = timeline.one_f_one_b(4, 32).play(
        lambda a: costs[a.stage] / 3 * (1.0 if a.kind == "F" else 2.0)
    )
    step, _ = bubble.step(Setting("one_f_one_b"), costs, 32)
    assert step == pytest.approx(max(ends[-1] for ends in played), rel=0.03)
