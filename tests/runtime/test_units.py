"""Weights in units: when they are whole, who owns what, and what misuse says."""

import pytest
import torch
from parlay.runtime import init
from parlay.runtime.axes import Grid
from parlay.runtime.gather import gather_on_use
from parlay.runtime.local import run_ranks
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.recompute import recompute
from parlay.runtime.scatter import ScatteredGradients
from parlay.runtime.units import UnitWeights
from torch import nn

PLAN = Plan.of({"version": 1, "model": {"layers": 3, "vocab": 10}, "init": {"std": 0.1}, "seed": 3})


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.RMSNorm(5), nn.Linear(5, 5, bias=False)

    def forward(self, x):
        return x + self.up(self.norm(x)).tanh()


class Model(nn.Module):
    """Five units, of numbers of weights that three does not divide; head and embedding are one."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(10, 5), nn.RMSNorm(5)
        self.layers = nn.ModuleDict({str(i): Layer() for i in range(3)})

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers.values():
            x = recompute(layer, x)
        return (self.norm(x) @ self.embedding.weight.T).logsumexp(-1).sum()


def built(rank, gathers):
    mesh = Mesh(Grid((("dp", 3),)))
    with torch.device("meta"):
        model = Model()
    weights = UnitWeights(
        model, dtype=torch.float64, device=mesh.device, axis=mesh.dp, gathers=gathers
    )
    init.fill(model, plan=PLAN, gathered=weights.drawn)
    if gathers:
        gather_on_use(model, weights)
    return model, weights, ScatteredGradients(weights, dtype=torch.float64)


def whole(weights):
    """The units that have memory."""
    return {u.name for u in weights.units if u.buffer.untyped_storage().nbytes()}


@pytest.mark.distributed
@pytest.mark.parametrize("gathers", [True, False])
def test_units_are_whole_where_they_are_used_and_gradients_those_of_one_process(gathers):
    tokens = torch.arange(12).view(3, 4) % 10
    with torch.device("meta"):
        plain = Model()
    plain = plain.to_empty(device="cpu").double()
    init.fill(plain, plan=PLAN)
    for _ in range(2):
        plain(tokens).backward()

    def target(rank):
        model, weights, gradients = built(rank, gathers)
        seen = []
        for layer in model.layers.values():
            layer.up.register_forward_hook(lambda *_: seen.append(whole(weights)))
            layer.up.weight.register_post_accumulate_grad_hook(
                lambda _: seen.append(whole(weights))
            )
        for _ in range(2):
            model(tokens[rank : rank + 1]).backward()
            seen.append(whole(weights))
        gradients.settle()
        pieces = [(name, at, piece.clone()) for name, at, piece in gradients.named()]
        with weights.whole():
            kept = {name: p.detach().clone() for name, p in model.named_parameters()}
        return seen, pieces, kept, weights.size

    found = run_ranks(target, 3, timeout=60)
    units = {"first": 50, "0": 30, "1": 30, "2": 30, "last": 5}
    owned = sum(-(-numel // 3) for numel in units.values())
    gathered = {name: torch.zeros(p.numel(), dtype=p.dtype) for name, p in plain.named_parameters()}
    for seen, pieces, kept, size in found:
        assert size == owned
        if gathers:
            # Three layers forward, again with their gradients backward, and nothing in the end.
            assert [len(units) for units in seen] == 2 * [2, 2, 3, 2, 2, 2, 2, 1, 1, 0]
        else:
            assert all(units == {"first", "0", "1", "2", "last"} for units in seen)
        for name, at, piece in pieces:
            gathered[name][at : at + len(piece)] += piece
        for name, weight in plain.named_parameters():
            assert torch.equal(kept[name], weight.detach())
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(gathered[name].view(weight.shape), weight.grad)


@pytest.mark.distributed
def test_a_backward_without_all_gradients_is_told():
    def target(rank):
        model, _, gradients = built(rank, gathers=True)
        model.layers["1"].up.weight.requires_grad_(False)
        model(torch.zeros(1, 2, dtype=torch.int64)).backward()
        with pytest.raises(RuntimeError, match="without all gradients of unit 1"):
            gradients.settle()

    run_ranks(target, 3, timeout=60)
