"""Router and experts on one rank, against the same written out token by token."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime import router  # noqa: E402
from parlay.runtime.experts import Grouped, _Visited, holds, visit  # noqa: E402
from parlay.runtime.optimizer import Steer  # noqa: E402
from parlay.runtime.plan import Section  # noqa: E402
from parlay.runtime.recompute import recompute  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


def scores(seed: int = 0, *, tokens: int = 40, count: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(tokens, count, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize(
    ("dtype", "inputs", "outputs"),
    [
        (torch.float32, 8, 12),
        (torch.float32, 7, 9),  # rows that start where torch's grouped product does not
        (torch.bfloat16, 16, 24),
        (torch.float64, 6, 10),
    ],
)
@pytest.mark.parametrize("counts", [[4, 0, 6], [0, 0, 0], [0, 10, 0]])
def test_each_row_meets_its_expert(dtype, inputs: int, outputs: int, counts: list[int]) -> None:
    torch.manual_seed(1)
    grouped = Grouped(3, inputs, outputs).to(dtype)
    torch.nn.init.normal_(grouped.weight)
    x = torch.randn(sum(counts), inputs, dtype=dtype, requires_grad=True)
    out = grouped(x, torch.tensor(counts))
    out.square().sum().backward()
    weight = grouped.weight.detach().double().requires_grad_()
    whole = x.detach().double().requires_grad_()
    rows = [part @ w.T for part, w in zip(whole.split(counts), weight, strict=True)]
    expected = torch.cat(rows)
    expected.square().sum().backward()
    limit = 0.05 if dtype is torch.bfloat16 else 1e-5
    for ours, theirs in ((out, expected), (x.grad, whole.grad), (grouped.weight.grad, weight.grad)):
        largest = theirs.abs().max() if theirs.numel() else 1.0
        assert ours.shape == theirs.shape
        assert ((ours.double() - theirs).abs() <= limit * largest).all()


def test_an_expert_without_rows_has_no_gradient() -> None:
    """Whatever a kernel leaves there: those of some GPUs write nothing."""
    grouped, counts = Grouped(3, 8, 4), torch.tensor([2, 0, 3])
    torch.nn.init.normal_(grouped.weight)
    matrices = _Visited.apply(grouped.weight, counts)
    left = torch.ones(3, 4, 8)
    left[1] = float("nan")
    matrices.backward(left)
    assert grouped.weight.grad.flatten(1).sum(1).tolist() == [32.0, 0.0, 32.0]
    # The product goes by it.
    node, names = grouped(torch.randn(5, 8), counts).grad_fn, []
    while node is not None:
        names.append(node.name())
        node = next((each for each, _ in node.next_functions if each is not None), None)
    assert "_VisitedBackward" in names


def test_nothing_is_computed_again_but_what_comes_before_the_product() -> None:
    """What is kept is kept before the product, so that computing again ends there."""
    grouped, counts = Grouped(2, 8, 4), torch.tensor([2, 3])
    torch.nn.init.normal_(grouped.weight)
    products = 0

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):  # type: ignore[no-untyped-def]
            nonlocal products
            products += "grouped_mm" in str(function)
            return function(*arguments, **(keywords or {}))

    x = torch.randn(5, 8, requires_grad=True)
    y = recompute(lambda x: grouped(torch.nn.functional.silu(x), counts), x)
    with Counted():
        (y * torch.ones_like(y)).sum().backward()
    assert products == 2


@pytest.mark.parametrize("top_groups", [1, 2, 4])
@pytest.mark.parametrize("top_k", [1, 2])
def test_the_best_of_the_best_groups(top_k: int, top_groups: int) -> None:
    given, correction = scores(), torch.linspace(-0.3, 0.3, 8, dtype=torch.float64)
    found = router.choose(
        given, logits=given, top_k=top_k, groups=4, top_groups=top_groups, correction=correction
    )
    counts = [0] * 8
    for token, row in enumerate(given.tolist()):
        ranked = [score + bias for score, bias in zip(row, correction.tolist(), strict=True)]
        each = max(1, top_k // top_groups)
        sums = [sum(sorted(ranked[at : at + 2])[-each:]) for at in range(0, 8, 2)]
        opened = sorted(range(4), key=lambda group: -sums[group])[:top_groups]
        inside = [expert for expert in range(8) if expert // 2 in opened]
        best = sorted(inside, key=lambda expert: -ranked[expert])[:top_k]
        assert found.experts[token].tolist() == best
        total = sum(row[expert] for expert in best) if top_k > 1 else 1.0
        for weight, expert in zip(found.weights[token].tolist(), best, strict=True):
            assert weight == pytest.approx(row[expert] / total)
        for expert in best:
            counts[expert] += 1
    assert found.counts.tolist() == counts


def test_a_correction_has_its_visits_for_a_gradient() -> None:
    correction = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    found = router.choose(scores(), logits=scores(), top_k=2, correction=correction)
    for _ in range(2):
        found.weights.sum().backward(retain_graph=True)
    assert correction.grad.tolist() == (2 * found.counts).tolist()


def test_the_auxiliary_loss_adds_its_gradient_alone() -> None:
    """scale · count · Σ f·p, beside whatever the weights are used for."""
    plain, given = scores(), scores()
    router.choose(plain, logits=plain, top_k=2).weights.square().sum().backward()
    found = router.choose(given, logits=given, top_k=2, balance=router.Balance(0.3))
    found.weights.square().sum().backward()
    alone = scores()
    shares = found.counts.double() / found.counts.sum()
    means = (alone / alone.sum(1, keepdim=True)).mean(0)
    (0.3 * 8 * (shares * means).sum()).backward()
    assert torch.allclose(given.grad - plain.grad, alone.grad, rtol=0, atol=1e-14)


def test_the_loss_of_large_logits_adds_its_gradient_alone() -> None:
    plain, given = scores(), scores()
    router.choose(plain.softmax(-1), logits=plain, top_k=2).weights.square().sum().backward()
    balance = router.Balance(0.0, size=0.3)
    found = router.choose(given.softmax(-1), logits=given, top_k=2, balance=balance)
    found.weights.square().sum().backward()
    alone = scores()
    (0.3 * alone.exp().sum(1).log().square().mean()).backward()
    assert torch.allclose(given.grad - plain.grad, alone.grad, rtol=0, atol=1e-14)


def test_weights_as_they_are_times_a_factor() -> None:
    given = scores()
    found = router.choose(given, logits=given, top_k=2, normalize=False, scale=2.5)
    assert torch.equal(found.weights, 2.5 * given.gather(1, found.experts))
    found = router.choose(given, logits=given, top_k=2, scale=2.5)
    assert torch.allclose(found.weights.sum(1), torch.full((40,), 2.5).double())


def test_a_token_is_the_weighed_sum_of_its_experts() -> None:
    torch.manual_seed(3)
    matrices = torch.randn(8, 5, 5, dtype=torch.float64)
    x = torch.randn(40, 5, dtype=torch.float64, requires_grad=True)
    given = scores()
    chosen = router.choose(given, logits=given, top_k=3)

    def experts(rows: Tensor, counts: Tensor) -> Tensor:
        pairs = zip(rows.split(counts.tolist()), matrices, strict=True)
        return torch.cat([part @ matrix for part, matrix in pairs])

    out = visit(x, chosen, experts)
    made = torch.einsum("th,ehk->tek", x, matrices)
    picked = made.gather(1, chosen.experts.unsqueeze(-1).expand(-1, -1, 5))
    expected = (picked * chosen.weights.unsqueeze(-1)).sum(1)
    assert torch.allclose(out, expected, rtol=0, atol=1e-13)
    ours = torch.autograd.grad(out.sin().sum(), (x, given), retain_graph=True)
    theirs = torch.autograd.grad(expected.sin().sum(), (x, given))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dense", "every", "layers"), [(0, 1, [0, 1, 2, 3, 4]), (1, 2, [2, 4]), (3, 1, [3, 4])]
)
def test_which_layers_have_experts(dense: int, every: int, layers: list[int]) -> None:
    experts = Section({"dense_layers": dense, "every": every}, path="experts")
    assert [number for number in range(5) if holds(number, experts)] == layers


def test_the_mean_of_visits() -> None:
    plan = Section(
        {
            "model": {"experts": {"top_k": 2, "count": 8, "correction_rate": 1e-3}},
            "batch": {"global_batch": 6, "seq": 10},
        },
        path="plan",
    )
    assert Steer.of(plan) == (1e-3, 15.0)  # type: ignore[arg-type]
