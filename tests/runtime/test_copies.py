"""What several ranks hold alike, and features cut over ranks, against one process."""

import pytest
import torch
import torch.nn.functional as F
from parlay.runtime import norm, tensor
from parlay.runtime.axes import Grid
from parlay.runtime.count import axes_of
from parlay.runtime.local import run_ranks
from parlay.runtime.mesh import Mesh
from parlay.runtime.sent import members
from parlay.runtime.shard import Gradients
from parlay.runtime.weights import Weights
from torch import nn

GRID = Grid((("tp", 4), ("pp", 3)))


def drawn(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=g)


def test_runs_and_ends_of_an_axis():
    assert GRID.runs("tp", 2)[:2] == [[0, 1], [2, 3]]
    assert GRID.runs("pp", 3)[:3] == [[0], [4], [8]]
    assert GRID.ends("pp") == [[0, 8], [1, 9], [2, 10], [3, 11]]
    assert Grid((("pp", 1), ("tp", 2))).ends("pp") == [[0], [1]]
    with pytest.raises(ValueError, match="do not divide into 3 runs"):
        GRID.runs("tp", 3)


def test_shards_and_what_holds_the_same_of_them():
    grid = Grid((("tp", 2), ("dp", 4)))
    assert grid.runs("dp", 2) == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert grid.across("dp", 2) == [[0, 4], [2, 6], [1, 5], [3, 7]]
    assert axes_of([1, 3], grid=grid) == members("shard", grid, shard=2) == "dp/2"
    assert axes_of([3, 7], grid=grid) == members("replicate", grid, shard=2) == "dp%2"
    assert members("shard", grid, shard=4) == members("replicate", grid, shard=1) == "dp"


def test_parts_of_an_axis_are_named_by_their_members():
    assert axes_of([2, 3], grid=GRID) == members("kv", GRID, 2) == "tp/2"
    assert axes_of([1, 9], grid=GRID) == members("embedding", GRID) == "pp.ends"
    assert members("kv", GRID, 1) == "tp"
    assert members("embedding", Grid((("pp", 2),))) == "pp"
    assert axes_of([1, 2], grid=GRID) is None
    assert axes_of([0, 4], grid=GRID) is None


class Held(nn.Module):
    """A norm that all ranks hold, a key that two ranks hold alike, a query of this rank's own."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(3)
        self.k = nn.Linear(3, 2)
        self.q = nn.Linear(3, 4, bias=False)


@pytest.mark.distributed
def test_copies_are_summed_and_counted_once():
    def target(rank):
        mesh = Mesh(Grid((("tp", 4),)))
        mesh.split("tp", 2, name="kv")
        mesh.ends("tp", name="embedding")
        keys = ("k.weight", "k.bias")
        with torch.device("meta"):
            model = Held()
        weights = Weights(
            model,
            dtype=torch.float64,
            device=torch.device("cpu"),
            cut={"k.weight": 0, "k.bias": 0, "q.weight": 0},
            copies=[(keys, mesh.kv)],
        )
        gradients = Gradients(weights, dtype=torch.float64)
        for name, gradient in gradients.named():
            gradient.fill_(1.0 if name == "norm.weight" else rank + 1.0)
        gradients.sum(keys, axis=mesh.kv)
        gradients.sum(("head.weight",), axis=mesh.tp)  # no such weight: nothing is sent
        norm = gradients.norm(over=mesh.tp, once=mesh.tp)
        found = {name: float(gradient.flatten()[0]) for name, gradient in gradients.named()}
        return mesh.kv.ranks, mesh.embedding.ranks, found, float(norm)

    results = run_ranks(target, 4, timeout=60)
    assert [kv for kv, *_ in results] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert [ends for _, ends, *_ in results] == [(0, 3), (1,), (2,), (0, 3)]
    assert [found["k.bias"] for *_, found, _ in results] == [3, 3, 7, 7]
    assert [found["q.weight"] for *_, found, _ in results] == [1, 2, 3, 4]
    # 3 of the norm, 8 of each of two keys, 12 of each query.
    expected = (3 + 8 * (9 + 49) + 12 * (1 + 4 + 9 + 16)) ** 0.5
    assert [norm for *_, norm in results] == pytest.approx([expected] * 4, rel=1e-15)


@pytest.mark.distributed
@pytest.mark.parametrize("sequence", [False, True])
def test_columns_with_biases(sequence):
    x, weight, bias, seed = drawn(2, 4, 3), drawn(6, 3, seed=1), drawn(6, seed=2), drawn(2, 4, 6)

    def target(rank):
        axis = Mesh(Grid((("tp", 2),))).tp
        own = [x.chunk(2, 1)[rank].contiguous() if sequence else x.clone()]
        own += [weight.chunk(2)[rank].clone(), bias.chunk(2)[rank].clone()]
        mine = [leaf.requires_grad_() for leaf in own]
        column = tensor.gather_column if sequence else tensor.column
        out = column(mine[0], mine[1], biases=(mine[2],), axis=axis)
        (out * seed.chunk(2, 2)[rank]).sum().backward()
        return out.detach(), [leaf.grad for leaf in mine]

    leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias)]
    plain = F.linear(*leaves)
    (plain * seed).sum().backward()
    results = run_ranks(target, 2, timeout=60)
    torch.testing.assert_close(torch.cat([out for out, _ in results], 2), plain.detach())
    for at, dim in enumerate((1 if sequence else None, 0, 0)):
        parts = [gradients[at] for _, gradients in results]
        whole = parts[0] if dim is None else torch.cat(parts, dim)
        torch.testing.assert_close(whole, leaves[at].grad, rtol=1e-14, atol=1e-14)


@pytest.mark.distributed
def test_norms_over_features_of_all_ranks():
    """The second tensor's features are held twice: the shares of its gradients add up."""
    q, k = drawn(2, 3, 8), drawn(2, 3, 4, seed=1)
    weights = drawn(8, seed=2), drawn(4, seed=3)
    seeds = drawn(2, 3, 8, seed=4), drawn(2, 2, 3, 4, seed=5)  # one of k for each copy

    def target(rank):
        axis = Mesh(Grid((("tp", 4),))).tp
        held = (rank, 4), (rank // 2, 2)
        own = [t.chunk(n, -1)[at].clone() for t, (at, n) in zip((q, k), held, strict=True)]
        norms = nn.ModuleList(nn.RMSNorm(2, eps=1e-5, dtype=torch.float64) for _ in own)
        with torch.no_grad():
            for one, weight, (at, n) in zip(norms, weights, held, strict=True):
                one.weight.copy_(weight.chunk(n)[at])
        leaves = [leaf.requires_grad_() for leaf in own]
        outs = norm.across(leaves, norms, axis=axis)
        above = seeds[0].chunk(4, -1)[rank], seeds[1][rank % 2].chunk(2, -1)[rank // 2]
        sum((out * one).sum() for out, one in zip(outs, above, strict=True)).backward()
        gradients = [*(leaf.grad for leaf in leaves), *(one.weight.grad for one in norms)]
        return [out.detach() for out in outs], gradients

    leaves = [leaf.clone().requires_grad_() for leaf in (q, k, *weights)]
    plain = [F.rms_norm(leaves[i], leaves[i].shape[-1:], leaves[i + 2], 1e-5) for i in (0, 1)]
    ((plain[0] * seeds[0]).sum() + (plain[1] * seeds[1].sum(0)).sum()).backward()
    outs, gradients = zip(*run_ranks(target, 4, timeout=60), strict=True)

    def close(mine, whole):
        torch.testing.assert_close(torch.cat(mine, -1), whole.detach(), rtol=1e-13, atol=1e-13)

    close([out[0] for out in outs], plain[0])
    close([out[1] for out in outs[::2]], plain[1])
    for at in (0, 2):
        close([one[at] for one in gradients], leaves[at].grad)
    for at in (1, 3):
        pairs = zip(gradients[::2], gradients[1::2], strict=True)
        close([one[at] + other[at] for one, other in pairs], leaves[at].grad)
