"""Attention over sequences cut over ranks against plain attention in float64, gradients too."""

from __future__ import annotations

import random
from math import lcm

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from parlay.runtime import attention, blocks, context, merged  # noqa: E402
from parlay.runtime.axes import Grid  # noqa: E402
from parlay.runtime.local import run_ranks  # noqa: E402
from parlay.runtime.mesh import Axis, Mesh  # noqa: E402

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def leaves(b: int, heads: int, kv_heads: int, s: int, d: int, e: int, *, dtype=torch.float64):
    """q, k, v, sinks and the gradient that comes from above."""
    g = torch.Generator().manual_seed(s * heads + d)
    shapes = [
        (b, heads, s, d),
        (b, kv_heads, s, d),
        (b, kv_heads, s, e),
        (heads,),
        (b, heads, s, e),
    ]
    return [torch.randn(shape, dtype=torch.float64, generator=g).to(dtype) for shape in shapes]


def plain(q, k, v, seed, *, sinks=None, **asked):
    """Output and gradients of one process."""
    given = [x.clone().requires_grad_() for x in (q, k, v, *([] if sinks is None else [sinks]))]
    if sinks is None and not asked:
        gqa = {"enable_gqa": q.shape[1] != k.shape[1]}
        out = F.scaled_dot_product_attention(*given, is_causal=True, **gqa)
    else:
        out = attention.unfused(*given[:3], sinks=given[3] if sinks is not None else None, **asked)
    return out.detach(), torch.autograd.grad(out, given, seed)


# ── Blocks ────────────────────────────────────────────────────────────────────


@settings(max_examples=30, deadline=None)
@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    borders=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    d=st.integers(1, 9),
    e=st.integers(1, 9),
)
def test_blocks_of_keys_merge_to_the_whole(kv_heads, group, borders, d, e) -> None:
    """The last rows of a sequence over its keys, a block after the other."""
    total, rows = sum(borders), borders[-1]
    q, k, v, sinks, seed = leaves(1, kv_heads * group, kv_heads, total, d, e)
    q, seed = q[:, :, -rows:], seed[:, :, -rows:]
    found, at, pieces = merged.Merged(q, e), 0, []
    for size in borders:
        piece = slice(at, at + size)
        causal, at = at + size == total, at + size
        pieces.append((piece, causal))
        found.add(slice(rows), *blocks.block(q, k[:, :, piece], v[:, :, piece], causal=causal))
    out, lse = found.done(sinks)
    given = [x.clone().requires_grad_() for x in (q, k, v, sinks)]
    whole = attention.unfused(*given[:3], sinks=given[3], rows=[range(total - rows, total)])
    torch.testing.assert_close(out, whole, **CLOSE)
    gradients = torch.autograd.grad(whole, given, seed)
    of_q = torch.zeros_like(q)
    for piece, causal in pieces:
        mine = blocks.block_gradients(
            seed, q, k[:, :, piece], v[:, :, piece], out, lse, causal=causal
        )
        of_q += mine[0]
        torch.testing.assert_close(mine[1], gradients[1][:, :, piece], **CLOSE)
        torch.testing.assert_close(mine[2], gradients[2][:, :, piece], **CLOSE)
    torch.testing.assert_close(of_q, gradients[0], **CLOSE)
    torch.testing.assert_close(merged.of_sinks(sinks, seed, out, lse), gradients[3], **CLOSE)


@given(n=st.integers(1, 5), chunk=st.integers(1, 4), folded=st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_token_is_on_one_rank_and_comes_back(n: int, chunk: int, folded: bool) -> None:
    s = 2 * n * chunk
    deal = context.head_tail if folded else context.piece
    at = [deal(s, axis=axis(rank, n)) for rank in range(n)]
    assert sorted(torch.cat(at).tolist()) == list(range(s))
    x = torch.randn(2, 3, s, 4)
    parts = context.parted(x, n, folded=folded)
    for rank in range(n):
        assert torch.equal(parts[rank], x[:, :, at[rank]])
    assert torch.equal(context.joined(parts, folded=folded), x)
    if folded:  # as many pairs of a query and a key that it sees on every rank
        assert len({int((one + 1).sum()) for one in at}) == 1


def axis(rank: int, size: int) -> Axis:
    return Axis(name="cp", group=None, ranks=tuple(range(size)), rank=rank)


def test_a_sequence_that_does_not_divide_is_told() -> None:
    with pytest.raises(ValueError, match="a sequence of 10 does not divide into 4 chunks"):
        context.head_tail(10, axis=axis(0, 2))


# ── On ranks ──────────────────────────────────────────────────────────────────


def cases(seed: int, world: int) -> list[dict]:
    """Shapes from a hat, and what each method is asked for besides."""
    pick, found = random.Random(seed), []
    for _ in range(4):
        kv_heads = pick.choice([1, world, 2 if world % 2 == 0 else 2 * world])
        shape = {
            "b": pick.randint(1, 2),
            "kv_heads": kv_heads,
            "heads": lcm(kv_heads, world) * pick.choice([1, 2]),
            "s": 2 * world * pick.randint(1, 3),
            "d": pick.randint(1, 6),
            "e": pick.randint(1, 6),
        }
        asked = {
            "window": pick.choice([None, 1, 3, 7]),
            "cap": pick.choice([0.0, 1.5]),
            "slopes": pick.random() < 0.5,
        }
        found.append({"shape": shape, "sinks": pick.random() < 0.5, "asked": asked})
    return found


def run(method: str, cp: Axis, q, k, v, sinks, asked):
    """This rank's output, of the tokens `at`, from its pieces of q, k and v."""
    if method in ("ring", "bent ring"):
        return context.ring(q, k, v, axis=cp, sinks=sinks, **asked)
    if method == "gathered":
        return context.gathered(q, k, v, axis=cp, sinks=sinks, **asked)
    folded = method == "folded"
    q, k, v = context.to_heads(q, k, v, axis=cp, folded=folded)
    own = None if sinks is None else sinks.chunk(cp.size)[cp.rank]
    return context.to_sequence(
        attention.unfused(q, k, v, sinks=own, **asked), axis=cp, folded=folded
    )


METHODS = ("ring", "bent ring", "gathered", "ulysses", "folded")


def on_ranks(world: int, seed: int, dtype: str = "float64"):
    """For each case and method: the greatest error of this rank's output and gradients."""

    def target(rank: int) -> list[tuple[str, dict, float]]:
        cp, found = Mesh(Grid((("cp", world),))).cp, []
        narrow = getattr(torch, dtype)
        for case in cases(seed, world):
            *whole, above = leaves(**case["shape"], dtype=narrow)
            exact = [x.double() for x in (*whole, above)]
            for method in METHODS:
                asked = dict(case["asked"])
                if method == "ring":
                    asked = {}
                elif asked.pop("slopes"):
                    asked["slopes"] = attention.slopes(whole[0].shape[1], like=whole[0])
                sinks = exact[3] if case["sinks"] else None
                out, gradients = plain(*exact[:3], exact[4], sinks=sinks, **asked)
                if method in ("ulysses", "folded") and "slopes" in asked:
                    asked["slopes"] = asked["slopes"].chunk(world)[rank]
                deal = context.piece if method == "ulysses" else context.head_tail
                at = deal(case["shape"]["s"], axis=cp)
                given = [x[:, :, at].requires_grad_() for x in whole[:3]]
                given += [whole[3].clone().requires_grad_()] if case["sinks"] else []
                mine = run(method, cp, *given[:3], given[3] if case["sinks"] else None, asked)
                of = list(torch.autograd.grad(mine, given, above[:, :, at]))
                if case["sinks"]:  # a rank has the share of its tokens, or of its heads
                    torch.distributed.all_reduce(of[3], group=cp.group)
                pairs = [(mine, out[:, :, at])]
                pairs += [(a, b[:, :, at]) for a, b in zip(of, gradients[:3], strict=False)]
                pairs += [(of[3], gradients[3])] if case["sinks"] else []
                error = max(
                    float((a.double() - b).abs().max() / (b.abs().max() + 1e-3)) for a, b in pairs
                )
                assert all(a.dtype == narrow for a, _ in pairs)
                found.append((method, case, error))
        return found

    return [one for rank in run_ranks(target, world, timeout=120) for one in rank]


@pytest.mark.distributed
@pytest.mark.parametrize(("world", "seed"), [(2, 0), (3, 1), (4, 2)])
def test_every_method_is_plain_attention(world: int, seed: int) -> None:
    found = on_ranks(world, seed)
    assert {method for method, _, _ in found} == set(METHODS)
    assert not [one for one in found if not one[2] < 1e-11]


@pytest.mark.distributed
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-5), ("bfloat16", 0.03)])
def test_narrow_dtypes(dtype: str, limit: float) -> None:
    found = on_ranks(2, 3, dtype)
    assert not [one for one in found if not one[2] < limit]
