"""Flat gradients and optimizer: masters, norms, state by name, and ZeRO-1 against plain AdamW."""

import copy
from types import SimpleNamespace

import pytest
import torch
from parlay.runtime.axes import Grid
from parlay.runtime.local import run_ranks
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.shard import Gradients, ShardedGradients
from parlay.runtime.weights import Region, Weights, regions
from torch import nn

CUT = {"up.weight": 0, "up.bias": 0, "down.weight": 1}
CPU = torch.device("cpu")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(5)
        self.up = nn.Linear(5, 7)
        self.down = nn.Linear(7, 3)

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(x)))).square().sum()


def built(*, dtype=torch.float64, multiple=1):
    with torch.device("meta"):
        model = Model()
    weights = Weights(model, dtype=dtype, device=CPU, cut=CUT, multiple=multiple)
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    return model, weights


def adamw(weights, gradients, *, master=torch.float64, **changed):
    settings = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, **changed}
    return AdamW(weights, gradients, master=master, states=master, **settings)


def samples(rank, step):
    g = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 5, dtype=torch.float64, generator=g)


# ── One rank ──────────────────────────────────────────────────────────────────


def test_small_steps_are_not_lost_in_bf16():
    """250 steps of 4e-5 from 1.0: a bf16 weight alone would not move, its spacing is 0.004."""
    for master, expected in [(torch.float32, 0.99), (torch.bfloat16, 1.0)]:
        with torch.device("meta"):
            model = nn.RMSNorm(1)
        weights = Weights(model, dtype=torch.bfloat16, device=CPU)
        gradients = Gradients(weights, dtype=torch.float32)
        optimizer = adamw(weights, gradients, master=master)
        with torch.no_grad():
            model.weight.fill_(1.0)
            optimizer.parts[0].fill_(1.0)
        for _ in range(250):
            gradients.buffer.fill_(1.0)
            optimizer.step(lr=4e-5)
            gradients.clear()
        assert float(optimizer.parts[0].detach()) == pytest.approx(expected, abs=1e-4)
        assert float(model.weight.detach()) == pytest.approx(expected, abs=0.004)


def test_gradients_of_microbatches_add_up_in_the_buffer():
    model, weights = built(dtype=torch.bfloat16)
    gradients = Gradients(weights, dtype=torch.float32)
    expected = {name: torch.zeros(p.shape) for name, p in model.named_parameters()}
    for step in range(3):
        x = samples(0, step).bfloat16()
        model(x).backward()
        assert all(parameter.grad is None for parameter in model.parameters())
        other, _ = built(dtype=torch.bfloat16)
        other(x).backward()
        for name, parameter in other.named_parameters():
            expected[name] += parameter.grad
    for name, gradient in gradients.named():
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, expected[name])
    gradients.clear()
    assert not gradients.buffer.any()


def test_the_buffer_is_in_ranges_of_what_is_treated_alike():
    _, weights = built(multiple=8)
    assert [place.name for place in weights.places] == [
        "up.weight",
        "down.weight",
        "norm.weight",
        "down.bias",
        "up.bias",
    ]
    assert weights.whole == slice(56, 56 + 5 + 3)
    assert regions(weights.pieces(slice(0, 72))) == [Region(0, 56, True), Region(56, 71, False)]
    assert (weights.numel, weights.buffer.numel()) == (71, 72)


def test_tied_weights_stay_tied():
    with torch.device("meta"):
        model = nn.Module()
        model.embedding, model.head = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
        model.head.weight = model.embedding.weight
    weights = Weights(model, dtype=torch.float32, device=CPU)
    assert model.head.weight is model.embedding.weight
    assert weights.numel == 8


def test_norm_and_clip():
    model, weights = built()
    gradients = Gradients(weights, dtype=torch.float64)
    model(samples(0, 0)).backward()
    every = torch.cat([gradient.flatten() for _, gradient in gradients.named()])
    norm = gradients.norm()
    assert float(norm) == pytest.approx(float(every.norm()), rel=1e-14)
    cut = torch.cat([g.flatten() for n, g in gradients.named() if n in CUT])
    assert float(gradients.norm(once=SimpleNamespace(first=False))) == pytest.approx(
        float(cut.norm()), rel=1e-14
    )
    gradients.clip(norm, limit=0.5)
    assert float(gradients.norm()) == pytest.approx(0.5, rel=1e-5)
    gradients.clip(gradients.norm(), limit=10.0)
    assert float(gradients.norm()) == pytest.approx(0.5, rel=1e-5)


def test_states_of_another_dtype_than_the_masters_are_refused():
    _, weights = built()
    with pytest.raises(ValueError, match=r"moments in torch.bfloat16 beside masters"):
        AdamW(
            weights,
            Gradients(weights, dtype=torch.float32),
            master=torch.float32,
            states=torch.bfloat16,
            betas=(0.9, 0.95),
            eps=1e-8,
            weight_decay=0.0,
        )


# ── Several ranks ─────────────────────────────────────────────────────────────


def plain(ranks, steps, *, clip):
    """torch.optim.AdamW on the sum of what all ranks see."""
    model, _ = built()
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.95),
    )
    norms = []
    for step in range(steps):
        for rank in range(ranks):
            model(samples(rank, step)).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip)))
        optimizer.step()
        optimizer.zero_grad()
    return norms, {name: p.detach() for name, p in model.named_parameters()}


def trained(mesh, *, zero, restart):
    """Four steps; with `restart` two by one optimizer and two by another with its state."""
    model, weights = built(multiple=mesh.dp.size)
    if zero:
        gradients = ShardedGradients(weights, dtype=torch.float64, axis=mesh.dp)
    else:
        gradients = Gradients(weights, dtype=torch.float64)
    optimizer = adamw(weights, gradients)
    norms = []
    for step in range(4):
        if restart and step == 2:
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = adamw(weights, gradients)
            with torch.no_grad():
                weights.buffer.zero_()
            optimizer.load_state_dict(saved)
            if zero:
                weights.all_gather(axis=mesh.dp)
        model(samples(mesh.dp.rank, step)).backward()
        if zero:
            gradients.reduce_scatter(axis=mesh.dp)
            norm = gradients.norm(over=mesh.world)
        else:
            gradients.all_reduce(axis=mesh.dp, bucket=20)
            norm = gradients.norm()
        gradients.clip(norm, limit=3.0)
        optimizer.step(lr=0.01)
        if zero:
            weights.all_gather(axis=mesh.dp)
        gradients.clear()
        norms.append(float(norm))
    return norms, {name: p.detach().numpy() for name, p in model.named_parameters()}


@pytest.mark.distributed
@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("ranks", [2, 3])
def test_equal_to_plain_adamw(zero, ranks):
    """With three ranks, borders of shards fall inside of weights, and the buffer is padded."""

    def target(rank):
        mesh = Mesh(Grid((("dp", ranks),)))
        return [trained(mesh, zero=zero, restart=restart) for restart in (False, True)]

    norms, weights = plain(ranks, 4, clip=3.0)
    for runs in run_ranks(target, ranks, timeout=60):
        for found, after in runs:
            assert found == pytest.approx(norms, rel=1e-12)
            for name, weight in after.items():
                torch.testing.assert_close(
                    torch.from_numpy(weight), weights[name], rtol=1e-11, atol=1e-12
                )


@pytest.mark.distributed
def test_a_shard_has_its_part_of_the_state_and_of_the_gradients():
    def target(rank):
        mesh = Mesh(Grid((("dp", 3),)))
        model, weights = built(multiple=3)
        gradients = ShardedGradients(weights, dtype=torch.float64, axis=mesh.dp)
        optimizer = adamw(weights, gradients, master=torch.float32)
        model(samples(0, 0)).backward()
        gradients.reduce_scatter(axis=mesh.dp)
        optimizer.step(lr=0.01)
        state = optimizer.state_dict()
        assert state["step"] == 1
        assert sum(part.numel() for part in optimizer.parts) == (24, 24, 23)[rank]
        pieces = {name: (s["offset"], len(s["exp_avg"])) for name, s in state["slices"].items()}
        assert pieces == {name: (at, len(piece)) for name, at, piece in gradients.named()}
        if rank == 2:
            other = copy.deepcopy(state)
            other["slices"]["norm.weight"]["offset"] = 1
            with pytest.raises(ValueError, match=r"norm\.weight: this rank owns 5 elements from 0"):
                optimizer.load_state_dict(other)
        return pieces

    found = run_ranks(target, 3, timeout=60)
    assert found == [
        {"up.weight": (0, 24)},
        {"up.weight": (24, 11), "down.weight": (0, 13)},
        {"down.weight": (13, 8), "norm.weight": (0, 5), "down.bias": (0, 3), "up.bias": (0, 7)},
    ]
