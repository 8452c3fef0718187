"""Each operator on ranks against the plain one, in float64, forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from parlay.runtime import tensor
from parlay.runtime.axes import Grid
from parlay.runtime.local import run_ranks
from parlay.runtime.mesh import Mesh

pytestmark = pytest.mark.distributed

B, S, H, WIDE, VOCAB, PADDED = 2, 12, 6, 24, 21, 24
NAMES = ["x", "q", "k", "o", "table"]


def inputs():
    g = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    tokens = torch.randint(0, VOCAB, (B, S), generator=g)
    labels = tokens.roll(-1, 1)
    labels[0, 3:8] = -100
    leaves = [normal(B, S, H), normal(WIDE, H), normal(WIDE, H), normal(H, WIDE), normal(PADDED, H)]
    seed = normal(B, S, H)  # the gradient that comes from above
    return dict(zip(NAMES, leaves, strict=True)), tokens, labels, seed


def plain():
    leaves, tokens, labels, seed = inputs()
    x, q, k, o, table = (leaf.requires_grad_() for leaf in leaves.values())
    out = F.linear(F.linear(x, q) * F.linear(x, k), o) + F.embedding(tokens, table)
    loss = F.cross_entropy(F.linear(x, table)[..., :VOCAB].flatten(0, 1), labels.flatten(),
                           reduction="sum")  # fmt: skip
    (loss + (out * seed).sum()).backward()
    return out.detach(), loss.detach(), [leaf.grad for leaf in leaves.values()]


def on_ranks(world, *, sequence):
    """What each rank gets; its pieces of x and of the weights are leaves of their own."""

    def target(rank):
        axis = Mesh(Grid((("tp", world),))).tp
        leaves, tokens, labels, seed = inputs()
        cut = {"q": 0, "k": 0, "o": 1, "table": 0} | ({"x": 1} if sequence else {})
        pieces = {
            name: (leaf.chunk(world, cut[name])[rank].contiguous() if name in cut else leaf)
            for name, leaf in leaves.items()
        }
        x, q, k, o, table = (piece.requires_grad_() for piece in pieces.values())
        if sequence:
            left, right = tensor.gather_column(x, q, k, axis=axis)
            out = tensor.row_scatter(left * right, o, axis=axis)
            out = out + tensor.embedding_scatter(tokens, table, axis=axis)
            logits = tensor.gather_column(x, table, axis=axis)
            seed = seed.chunk(world, 1)[rank]
        else:
            left, right = tensor.column(x, q, k, axis=axis)
            out = tensor.row(left * right, o, axis=axis)
            out = out + tensor.embedding(tokens, table, axis=axis)
            logits = tensor.column(x, table, axis=axis)
        loss = tensor.cross_entropy(logits, labels, vocab=VOCAB, axis=axis)
        (loss + (out * seed).sum()).backward()
        return [t.numpy() for t in (out.detach(), loss.detach(), x.grad, q.grad, k.grad, o.grad,
                                    table.grad)]  # fmt: skip

    return target


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("sequence", [False, True], ids=["plain", "sequence"])
def test_equal_to_the_plain_operators(world, sequence):
    out, loss, grads = plain()
    found = run_ranks(on_ranks(world, sequence=sequence), world, timeout=60)
    found = [[torch.from_numpy(one) for one in of_rank] for of_rank in found]

    def joined(at, dim):
        parts = [of_rank[at] for of_rank in found]
        if dim is None:
            assert all(torch.equal(part, parts[0]) for part in parts)
            return parts[0]
        return torch.cat(parts, dim)

    dim = 1 if sequence else None
    expected = [out, loss, *grads]
    for at, cut in enumerate([dim, None, dim, 0, 0, 1, 0]):
        torch.testing.assert_close(joined(at, cut), expected[at], rtol=1e-12, atol=1e-12)
    assert not grads[-1][VOCAB:].any()  # padded rows get nothing
    assert not joined(6, 0)[VOCAB:].any()


def test_bf16_logits_are_summed_in_float32():
    def target(rank):
        axis = Mesh(Grid((("tp", 2),))).tp
        g = torch.Generator().manual_seed(0)
        logits = torch.randn(1, 64, 512, generator=g).bfloat16()
        labels = torch.randint(0, 512, (1, 64), generator=g)
        mine = logits.chunk(2, -1)[rank].contiguous().requires_grad_()
        loss = tensor.cross_entropy(mine, labels, vocab=512, axis=axis)
        loss.backward()
        exact = F.cross_entropy(logits.double().flatten(0, 1), labels.flatten(), reduction="sum")
        return loss.dtype, mine.grad.dtype, float(loss), float(exact)

    for dtype, of_gradient, loss, exact in run_ranks(target, 2, timeout=60):
        assert (dtype, of_gradient) == (torch.float32, torch.bfloat16)
        assert loss == pytest.approx(exact, rel=1e-6)


def test_a_sequence_that_does_not_divide_is_refused():
    def target(rank):
        axis = Mesh(Grid((("tp", 2),))).tp
        with pytest.raises(ValueError, match="a sequence of 5 does not divide into 2 pieces"):
            tensor.row_scatter(torch.ones(1, 5, 2), torch.ones(2, 2), axis=axis)

    run_ranks(target, 2, timeout=60)
