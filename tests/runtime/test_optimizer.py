"""Optimizers that keep less: SGD, moments in bf16, no masters, compensated sums; saved and back."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime import masters  # noqa: E402
from parlay.runtime.optimizer import SGD, LeanAdamW, Optimizer  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.shard import Gradients  # noqa: E402
from parlay.runtime.weights import Weights  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16
ADAM: dict[str, Any] = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of several chunks, the last of which is a part of one."""
    monkeypatch.setattr(masters, "CHUNK", 8)


def built(weights: torch.dtype, *, of: type[Optimizer], master: torch.dtype, **given: Any) -> Any:
    """A linear layer of 5 x 4, drawn, and its optimizer."""
    with torch.device("meta"):
        model = nn.Linear(4, 5)
    held = Weights(model, dtype=weights, device=torch.device("cpu"))
    with torch.no_grad():
        held.buffer.copy_(torch.linspace(-1, 1, held.buffer.numel()))
    gradients = Gradients(held, dtype=F32 if weights != F64 else F64)
    return model, gradients, of(held, gradients, master=master, **given)


def push(gradients: Gradients, step: int) -> Tensor:
    """Gradients of a step; all of them, flat."""
    drawn = torch.randn(
        gradients.buffer.shape, generator=torch.Generator().manual_seed(step), dtype=F32
    )
    gradients.buffer.copy_(drawn)
    return gradients.buffer.double()


# ── SGD ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs(momentum: float) -> None:
    model, gradients, sgd = built(
        F64, of=SGD, master=F64, states=F64, momentum=momentum, weight_decay=0.2
    )
    weight, bias = (nn.Parameter(p.detach().clone()) for p in (model.weight, model.bias))
    plain = torch.optim.SGD(
        [{"params": [weight], "weight_decay": 0.2}, {"params": [bias]}], lr=0.1, momentum=momentum
    )
    for step in range(3):
        push(gradients, step)
        found = dict(gradients.named())
        weight.grad, bias.grad = found["weight"].clone(), found["bias"].clone()
        sgd.step(lr=0.1)
        plain.step()
    assert sgd.kinds == (("momentum",) if momentum else ())
    torch.testing.assert_close(model.weight, weight, rtol=1e-14, atol=0)
    torch.testing.assert_close(model.bias, bias, rtol=1e-14, atol=0)


# ── AdamW ─────────────────────────────────────────────────────────────────────


def expected(start: Tensor, steps: int, *, states: torch.dtype, decays: Tensor) -> Tensor:
    """Adam in float64 over float32 masters, whose moments are rounded to `states`."""
    weight, first, second = start.double(), torch.zeros_like(start).double(), 0.0
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        gradient = torch.randn(start.shape, generator=generator, dtype=F32).double()
        exact, square = 0.9 * first + 0.1 * gradient, 0.95 * second + 0.05 * gradient**2
        first, second = exact.to(states).double(), square.to(states).double()
        spread = (square / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8
        weight = weight * (1 - 0.1 * 0.1 * decays) - 0.1 * exact / (1 - 0.9 ** (step + 1)) / spread
    return weight


@pytest.mark.parametrize(("states", "kahan"), [*itertools.product([F32, BF16], [False, True])])
def test_moments_are_rounded_and_nothing_else(states: torch.dtype, kahan: bool) -> None:
    _, gradients, adam = built(F32, of=LeanAdamW, master=F32, states=states, kahan=kahan, **ADAM)
    start = gradients.weights.buffer.clone()
    decays = torch.zeros_like(start)
    for place in gradients.weights.places:
        decays[place.start : place.stop] = float(len(place.shape) > 1)
    for step in range(4):
        push(gradients, step)
        adam.step(lr=0.1)
    assert adam.state[0]["exp_avg"].dtype == states
    torch.testing.assert_close(
        gradients.weights.buffer.double(),
        expected(start, 4, states=states, decays=decays),
        rtol=2e-6,
        atol=2e-6,
    )


@pytest.mark.parametrize(
    ("master", "kahan", "arrives"),
    [(F32, False, 0.99), (BF16, False, 1.0), (BF16, True, 0.99)],
)
def test_small_steps_without_masters_are_lost_unless_they_are_compensated(
    master: torch.dtype, kahan: bool, arrives: float
) -> None:
    """250 steps of 4e-5 from 1.0, where the numbers of bf16 are 0.004 apart."""
    _, gradients, adam = built(BF16, of=LeanAdamW, master=master, states=BF16, kahan=kahan, **ADAM)
    with torch.no_grad():
        for part in adam.parts:
            part.fill_(1.0)
        gradients.weights.buffer.fill_(1.0)
    for _ in range(250):
        gradients.buffer.fill_(1.0)
        adam.step(lr=4e-5)
    bias = dict(gradients.weights.parameters)["bias"]
    assert float(bias.detach().float().mean()) == pytest.approx(arrives, abs=0.003)


def test_masters_and_state_on_the_host() -> None:
    """By their devices, one of which holds nothing: 12 bytes a parameter on the host, 6 there."""
    with FakeTensorMode():
        with torch.device("meta"):
            model = nn.Linear(4, 5)
        weights = Weights(model, dtype=BF16, device=torch.device("meta"))
        gradients = Gradients(weights, dtype=F32)
        of = LeanAdamW(weights, gradients, master=F32, states=F32, host=True, **ADAM)
        of.step(lr=0.1)
        of.load_state_dict(of.state_dict())
        held = [*of.parts, *(tensor for state in of.state for tensor in state.values())]
        assert {tensor.device.type for tensor in held} == {"cpu"}
        assert sum(tensor.nbytes for tensor in held) == 12 * 25
        assert {own.device.type for own in of.own} == {"meta"}
        assert weights.buffer.nbytes + gradients.buffer.nbytes == 6 * 25


# ── Saved ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "given"),
    [
        (SGD, {"master": F32, "states": F32, "momentum": 0.9, "weight_decay": 0.0}),
        (LeanAdamW, {"master": BF16, "states": BF16, "kahan": True, **ADAM}),
    ],
)
def test_a_run_goes_on_from_its_save(
    of: type[Optimizer], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parlay.runtime.checkpoint import Checkpoints

    fields = {"version": 1, "seed": 1, "spec": "", "steps": 4, "batch": {"global_batch": 2}}
    asked = {"path": "saves", "every": 2, "keep": None, "asynchronous": False}
    plan = Plan.of({**fields, "checkpoint": asked})
    monkeypatch.delenv("PARLAY_OUT", raising=False)
    runs = []
    for start in (0, 2):
        _, gradients, optimizer = built(BF16, of=of, **given)
        saves = Checkpoints(plan, optimizer, folder=tmp_path)
        monkeypatch.setenv("PARLAY_RESUME", "1" if start else "")
        assert saves.resume() == start
        for step in range(start, 4):
            push(gradients, step)
            optimizer.step(lr=0.1)
            if not start:
                saves.after(step)
        assert optimizer.taken == 4
        runs.append([part.detach().clone() for part in optimizer.parts])
        if not start:  # the second save goes, the first is gone on from
            (tmp_path / "saves" / "step-00000004" / "committed.json").unlink()
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
