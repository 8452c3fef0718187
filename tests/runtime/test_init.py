"""Initial weights do not depend on the layout, and are the documented draw."""

import contextlib
import hashlib
import math
from types import SimpleNamespace

import pytest
import torch
from parlay.runtime import init
from torch import nn

PLAN = SimpleNamespace(
    model=SimpleNamespace(vocab=1030, layers=3), init=SimpleNamespace(std=0.02), seed=7
)
CUT = {"embedding.weight": 0, "o.weight": 1, "up.weight": 0}


class Model(nn.Module):
    def __init__(self, *, padded, size=1):
        super().__init__()
        self.embedding = nn.Embedding(padded // size, 8)
        self.up = nn.Linear(8, 600 // size)
        self.o = nn.Linear(600 // size, 300, bias=False)
        self.norm = nn.RMSNorm(8)


def filled(*, padded, size=1, rank=0):
    model = Model(padded=padded, size=size).double()
    init.fill(model, plan=PLAN, cut=CUT, axis=SimpleNamespace(rank=rank, size=size))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_pieces_are_pieces_of_the_whole(size):
    padded = 1200  # with four ranks the last one has padding alone
    whole = filled(padded=padded)
    for rank in range(size):
        mine = filled(padded=padded, size=size, rank=rank)
        for name, weight in whole.items():
            dim = {"embedding.weight": 0, "o.weight": 1, "up.weight": 0}.get(name)
            expected = weight if dim is None else weight.chunk(size, dim)[rank]
            if name != "up.bias":
                assert torch.equal(mine[name], expected), name


def test_the_draw_is_the_documented_one():
    weights = filled(padded=1032)
    for name, block, rows, columns, std in [
        ("embedding.weight", 4, 6, 8, 0.02),  # 1030 rows: four blocks of 256 and six
        ("up.weight", 1, 256, 8, 0.02),
        ("o.weight", 1, 44, 600, 0.02 / math.sqrt(6)),
    ]:
        digest = hashlib.sha256(f"7/{name}/{block}".encode()).digest()
        key = int.from_bytes(digest[:8], "big") // 2
        drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(key)) * std
        at = slice(256 * block, 256 * block + rows)
        assert torch.equal(weights[name][at], drawn.double()), name
    assert not weights["embedding.weight"][1030:].any()
    assert (weights["norm.weight"] == 1).all()
    assert not weights["up.bias"].any()


@pytest.mark.parametrize(
    "kept", [slice(0, 0), slice(2050, 2100), slice(4095, 4801), slice(5, 9600)]
)
def test_elements_that_a_rank_keeps(kept, monkeypatch):
    """They are as in a whole draw, and no block is drawn that has none of them."""
    drawn, draw = [], init.draw
    whole = filled(padded=1200)["embedding.weight"]
    monkeypatch.setattr(init, "draw", lambda *a, **kw: drawn.append(a[1]) or draw(*a, **kw))
    model = nn.Module()
    model.embedding = nn.Embedding(1200, 8).double()
    init.fill(model, plan=PLAN, gathered=lambda _: contextlib.nullcontext(kept))
    mine = model.embedding.weight.detach()
    assert torch.equal(mine.flatten()[kept], whole.flatten()[kept])
    assert drawn == list(range(kept.start // 2048, -(-min(kept.stop, 1030 * 8) // 2048)))


def test_a_rank_draws_only_the_blocks_it_needs(monkeypatch):
    drawn = []
    draw = init.draw

    def counted(name, block, **sizes):
        drawn.append((name, block))
        return draw(name, block, **sizes)

    monkeypatch.setattr(init, "draw", counted)
    filled(padded=1200, size=2, rank=1)
    assert [block for name, block in drawn if name == "embedding.weight"] == [2, 3, 4]
