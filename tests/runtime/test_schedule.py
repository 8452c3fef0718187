import pytest
from parlay.runtime.schedule import constant, cosine, linear, wsd


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


def test_constant_linear_and_stable():
    assert [constant(step, lr=2.0, warmup=4, steps=9) for step in (0, 3, 4, 99)] == [0.5, 2, 2, 2]
    assert constant(0, lr=2.0, warmup=0, steps=9) == 2.0
    found = [linear(step, lr=1.0, warmup=2, min_lr=0.2, steps=10) for step in (0, 1, 2, 6, 10, 99)]
    assert found == pytest.approx([0.5, 1.0, 1.0, 0.6, 0.2, 0.2])
    found = [
        wsd(step, lr=1.0, warmup=2, decay=4, min_lr=0.2, steps=10) for step in (0, 1, 5, 6, 8, 10)
    ]
    assert found == pytest.approx([0.5, 1.0, 1.0, 1.0, 0.6, 0.2])
    assert wsd(9, lr=1.0, warmup=2, decay=0, min_lr=0.2, steps=10) == 1.0
    assert wsd(5, lr=1.0, warmup=8, decay=9, min_lr=0.2, steps=10) == 0.75
