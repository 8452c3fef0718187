"""Planted faults of the runtime, and of how train.py calls it: ranks are forked from this process,
so that what is patched here is broken on each of them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime import context, parts, router, shard  # noqa: E402
from parlay.runtime.weights import Piece  # noqa: E402

from .proving import Edit, par, prove, replaced  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SIZES = "layers = 2, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000"
EXPERTS = "experts { count = 4, top_k = 2, ffn = 32, aux_loss = 0.01, router_bias = on }"
TWO = par("dp = 2", gpus=2, model=f"model {{ {SIZES} }}")
RING = par("cp = 2, cp_method = ring", gpus=2, model=f"model {{ {SIZES}, sinks = on }}")
DEALT = par("dp = 2, ep = 2", gpus=2, model=f"model {{ {SIZES}\n{EXPERTS} }}")


def last_alone(view: Any) -> Any:
    """Of several microbatches the last one's gradient is kept."""

    def add(parameter: Any) -> None:
        if parameter.grad is not None:
            view.copy_(parameter.grad)
            parameter.grad = None

    return add


def twice(ctx: Any, gradient: Any) -> Any:
    return gradient, gradient.new_full((), 2.0)


def common_alone(self: Any, norm: Any, *, limit: float) -> None:
    self.common.clip(norm, limit=limit)


def broken(of: Any, name: str, by: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(of, name, by)


FAULTS: dict[str, tuple[str, AbstractContextManager[Any], Edit | None, set[str]]] = {
    "gradients of the last microbatch alone": (
        TWO,
        broken(shard, "_adder", last_alone),
        None,
        {"gradients"},
    ),
    "norms that decay": (
        TWO,
        broken(Piece, "decays", property(lambda _: True)),
        None,
        {"weights"},
    ),
    "every replica reads the samples of the first": (
        TWO,
        nullcontext(),
        replaced("train.py", "rank=mesh.dp.rank", "rank=0"),
        {"loss", "gradients"},
    ),
    "the learning rate of the next step": (
        TWO,
        nullcontext(),
        replaced(
            "train.py",
            "step(lr=learning_rate(job.plan, step))",
            "step(lr=learning_rate(job.plan, step + 1))",
        ),
        {"weights"},
    ),
    "sinks without a gradient in a ring": (
        RING,
        broken(context, "of_sinks", lambda sinks, *_: torch.zeros_like(sinks)),
        None,
        {"gradients"},
    ),
    "an auxiliary loss that counts twice": (
        DEALT,
        broken(router._Beside, "backward", staticmethod(twice)),
        None,
        {"gradients"},
    ),
    "experts whose gradients are not clipped": (
        DEALT,
        broken(parts.GradientParts, "clip", common_alone),
        None,
        {"weights"},
    ),
    "a correction that goes the other way": (
        DEALT,
        nullcontext(),
        replaced(
            "train.py", "Steer.of(plan)", "Steer(-Steer.of(plan).rate, Steer.of(plan).visits)"
        ),
        {"weights"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    layout, patched, edit, expected = FAULTS[name]
    with patched:
        result = prove(layout, tmp_path, edit=edit)
    assert not result["passed"] and not result["detail"], result["detail"]
    failed = {part for part in ("loss", "gradients", "weights") if not result[part]["passed"]}
    assert expected <= failed, (failed, result["failures"])
    assert result["collectives"]["match"]
