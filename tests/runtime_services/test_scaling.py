"""The scale of an fp16 loss: when it changes, and when it cannot."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime.health import Unhealthy  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.scaling import LossScale  # noqa: E402


class Found:
    def named(self) -> list[tuple[str, torch.Tensor]]:
        return [("up.weight", torch.tensor([float("inf")]))]


def scale(*, initial: float = 8.0, window: int = 2, least: float = 1.0) -> LossScale:
    numbers = {"initial": initial, "window": window, "least": least}
    return LossScale(Plan.of({"version": 1, "loss_scale": numbers}))


def walk(of: LossScale, norms: list[float]) -> list[tuple[bool, float]]:
    return [
        (of.fits(torch.tensor(norm), Found(), step=step), of.value)
        for step, norm in enumerate(norms)
    ]


def test_it_falls_at_an_overflow_and_grows_after_good_steps() -> None:
    inf, nan = float("inf"), float("nan")
    of = scale()
    assert walk(of, [1.0, inf, nan, 1.0, 1.0, 1.0]) == [
        (True, 8.0),
        (False, 4.0),  # the good step before it counts no more
        (False, 2.0),
        (True, 2.0),
        (True, 4.0),
        (True, 4.0),
    ]
    assert of.skipped == 2
    again = scale()
    again.load_state_dict(of.state_dict())
    assert walk(again, [1.0]) == [(True, 8.0)] and again.skipped == 2


def test_where_it_cannot_fall_the_run_ends() -> None:
    of = scale(initial=2.0)
    with pytest.raises(Unhealthy, match=r"step 1: .* up.weight on rank 0"):
        walk(of, [float("inf"), float("inf")])
