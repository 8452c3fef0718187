import pytest
from parlay.runtime.schedule import cosine


def rate(step):
    return cosine(step, lr=1.0, warmup=4, min_lr=0.1, steps=20)


def test_up_in_a_line_down_in_a_cosine():
    assert [rate(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert rate(4) == 1.0
    assert rate(12) == pytest.approx(0.55)
    assert rate(20) == rate(1000) == pytest.approx(0.1)


def test_all_warmup_or_none():
    assert cosine(0, lr=1.0, warmup=0, min_lr=0.0, steps=10) == 1.0
    assert cosine(9, lr=1.0, warmup=10, min_lr=0.0, steps=10) == 1.0
