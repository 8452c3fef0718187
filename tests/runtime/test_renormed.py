"""A norm whose output is not kept: the same gradients, and less held."""

from __future__ import annotations

import weakref

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime.recompute import renormed  # noqa: E402
from torch import Tensor, nn  # noqa: E402


class Two(nn.Module):
    """Reads its input twice, by linears, and once more as a view."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        return self.one(x).sigmoid() * self.two(x) * by + x[:, 1:].square().sum()


def built() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    norm, two = nn.LayerNorm(6, dtype=torch.float64), Two().double()
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    return norm, two, x, torch.tensor(0.5, dtype=torch.float64)


def test_gradients_are_the_same_and_the_norm_runs_once_more() -> None:
    found = []
    for again in (False, True):
        norm, two, x, by = built()
        runs: list[int] = []
        norm.register_forward_hook(lambda *_, runs=runs: runs.append(1))
        out = renormed(norm, two, x, by) if again else two(norm(x), by)
        out.sum().backward()
        assert len(runs) == 1 + again
        found.append([x.grad, *(p.grad for p in (*norm.parameters(), *two.parameters()))])
    for plain, other in zip(*found, strict=True):
        assert torch.equal(plain, other)


def test_the_output_is_not_kept() -> None:
    norm, two, x, by = built()
    outputs: list[weakref.ref[torch.UntypedStorage]] = []
    norm.register_forward_hook(
        lambda _, __, out: outputs.append(weakref.ref(out.untyped_storage()))
    )
    for again in (False, True):
        out = renormed(norm, two, x, by) if again else two(norm(x), by)
        assert (outputs.pop()() is None) == again
        del out


def test_nothing_is_packed_without_gradients() -> None:
    norm, two, x, by = built()
    with torch.no_grad():
        assert not renormed(norm, two, x, by).requires_grad
