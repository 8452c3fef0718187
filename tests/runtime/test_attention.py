"""Attention with windows, caps, slopes and sinks: by FlexAttention, and pair by pair."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")
from parlay.runtime import attention, blocks, flex  # noqa: E402
from torch.nn.attention import flex_attention  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

if TYPE_CHECKING:
    from torch._dynamo.testing import CompileCounterWithBackend

CASES = {
    "causal": {},
    "a cap": {"cap": 1.5},
    "a window": {"window": 5},
    "one token": {"window": 1},
    "slopes": {"slopes": True},
    "sinks": {"sinks": True},
    "all": {"window": 7, "cap": 1.5, "slopes": True, "sinks": True},
}


def given(case: dict, *, s: int, heads: int = 6) -> tuple[list, dict]:
    """Leaves q, k, v and sinks, and the rest of what attention is told."""
    torch.manual_seed(0)
    shapes = [(2, heads, s, 8), (2, heads // 2, s, 8), (2, heads // 2, s, 8)]
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    told = {name: value for name, value in case.items() if name in ("window", "cap")}
    if case.get("slopes"):
        told["slopes"] = attention.slopes(heads, like=leaves[0])
    if case.get("sinks"):
        leaves.append(torch.randn(heads, dtype=torch.float64, requires_grad=True))
        told["sinks"] = leaves[3]
    return leaves, told


def by_pairs(q, k, v, *, window=None, cap=0.0, slopes=None, sinks=None):
    """Query by query, over the keys that it sees."""
    _, heads, s, d = q.shape
    out = torch.zeros_like(q)
    for h in range(heads):
        of_k, of_v = (x[:, h * k.shape[1] // heads] for x in (k, v))
        for i in range(s):
            first = max(0, i - (window or s) + 1)
            score = (of_k[:, first : i + 1] @ q[:, h, i, :, None]).squeeze(-1) / math.sqrt(d)
            score = cap * torch.tanh(score / cap) if cap else score
            if slopes is not None:
                score = score - slopes[h] * torch.arange(i - first, -1, -1)
            power = score.exp()
            total = power.sum(-1, keepdim=True) + (0 if sinks is None else sinks[h].exp())
            out[:, h, i] = ((power / total).unsqueeze(1) @ of_v[:, first : i + 1]).squeeze(1)
    return out


@pytest.mark.parametrize("case", CASES)
def test_written_out(case: str) -> None:
    leaves, told = given(CASES[case], s=12)
    same(attention.unfused(*leaves[:3], **told), by_pairs(*leaves[:3], **told), leaves)
    # On CPUs the fused one is the same.
    same(attention.fused(*leaves[:3], **told), attention.unfused(*leaves[:3], **told), leaves)


def same(ours, theirs, leaves) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(ours)
    gradients = [torch.autograd.grad((one * weight).sum(), leaves) for one in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_narrow_inputs_are_summed_in_float32() -> None:
    leaves, told = given(CASES["all"], s=32)
    narrow = [leaf.bfloat16() for leaf in leaves]
    told = {**told, "slopes": told["slopes"].float(), "sinks": narrow[3]}
    out = attention.unfused(*narrow[:3], **told)
    assert out.dtype == torch.bfloat16
    wide = [leaf.double() for leaf in narrow]
    exact = attention.unfused(*wide[:3], **{**told, "sinks": wide[3]})
    assert (out - exact).abs().max() < 2**-7 * exact.abs().max()


def test_queries_of_some_rows() -> None:
    leaves, told = given(CASES["all"], s=24)
    rows, at = [range(4, 8), range(16, 20)], [*range(4, 8), *range(16, 20)]
    whole = attention.unfused(*leaves[:3], **told)[:, :, at]
    same(attention.unfused(leaves[0][:, :, at], *leaves[1:3], rows=rows, **told), whole, leaves)


# ── On a GPU ──────────────────────────────────────────────────────────────────


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """FlexAttention as on a GPU, but for the kernels; torch has none with gradients on CPUs."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()  # what was compiled for tests before counts towards a limit
    counter = CompileCounterWithBackend("aot_eager")
    kernel = torch.compile(flex_attention.flex_attention, dynamic=False, backend=counter)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex, "on_gpu", lambda _: True)
    monkeypatch.setattr(flex, "compiled", lambda: kernel)
    return counter


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_flex_attention_computes_the_same() -> None:
    leaves, told = given(CASES["all"], s=150)
    same(attention.fused(*leaves[:3], **told), attention.unfused(*leaves[:3], **told), leaves)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_flex_attention_of_some_rows() -> None:
    leaves, told = given(CASES["all"], s=320)
    rows, at = [range(40, 120), range(200, 280)], [*range(40, 120), *range(200, 280)]
    ours = attention.fused(leaves[0][:, :, at], *leaves[1:3], rows=rows, **told)
    same(ours, attention.unfused(*leaves[:3], **told)[:, :, at], leaves)


BENDS = {
    "a window that hides rows": {"columns": range(70), "window": 60},
    "a cap and slopes of what lies behind": {"columns": range(20, 90), "cap": 0.7, "slopes": 4},
    "the block of a query's own token": {"columns": range(100, 170), "window": 9, "cap": 0.7},
}


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", BENDS)
def test_a_bent_block_by_flex_attention(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another block of the same rows, each is what the written-out one is."""
    torch.manual_seed(5)
    asked = dict(BENDS[case])
    slopes = torch.linspace(0.01, 0.2, 4, dtype=torch.float64) if asked.pop("slopes", 0) else None
    bend = blocks.Bend(range(100, 170), slopes=slopes, **asked)
    q, out, gradient = (torch.randn(2, 4, 70, 16, dtype=torch.float64) for _ in range(3))
    k, v = (torch.randn(2, 2, 70, 16, dtype=torch.float64) for _ in range(2))
    assert bend.seen
    ours, mine = blocks.block(q, k, v, bend=bend)
    lse = torch.logaddexp(mine, torch.randn(2, 4, 70, dtype=torch.float64))
    found = blocks.block_gradients(gradient, q, k, v, out, lse, bend=bend)
    monkeypatch.setattr(flex, "on_gpu", lambda _: False)
    theirs, other = blocks.block(q, k, v, bend=bend)
    wanted = blocks.block_gradients(gradient, q, k, v, out, lse, bend=bend)
    for one, two in zip((ours, mine, *found), (theirs, other, *wanted), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


def test_a_block_that_no_query_sees() -> None:
    rows = range(100, 170)
    assert not blocks.Bend(rows, range(70), window=31).seen
    assert blocks.Bend(rows, range(70), window=32).seen
    assert not blocks.Bend(rows, range(170, 240)).seen
    assert blocks.Bend(rows, range(169, 240)).seen


@pytest.mark.parametrize("causal", [False, True])
def test_flash_operators_take_what_a_block_gives_them(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: of shapes alone, heads of 12 and 20 features among them."""
    monkeypatch.setattr(blocks, "_by_flash", lambda _: True)
    shapes = [(2, 6, 5, 12), (2, 3, 7, 12), (2, 3, 7, 20)]
    q, k, v = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    out, lse = blocks.block(q, k, v, causal=causal)
    assert (out.shape, lse.shape) == ((2, 6, 5, 20), (2, 6, 5))
    found = blocks.block_gradients(out, q, k, v, out, lse, causal=causal)
    assert [one.shape for one in found] == [q.shape, k.shape, v.shape]


@pytest.mark.slow
def test_a_kernel_is_compiled_once_for_each_kind_of_layer(
    compiled: CompileCounterWithBackend,
) -> None:
    for _ in range(2):
        for window in (5, None):
            leaves, _ = given({}, s=150)

            def run(*qkv, window=window):
                return attention.fused(*qkv, window=window, cap=1.5)

            checkpoint(run, *leaves, use_reentrant=False).sum().backward()
    assert compiled.frame_count == 2


@pytest.mark.slow
def test_blocks_of_a_ring_have_one_kernel(compiled: CompileCounterWithBackend) -> None:
    """And one more for their gradients, however far keys are from queries: torch compiles eight
    kinds and computes the ninth with all its scores."""
    q, k, v, out = (torch.randn(1, 2, 8, 4, dtype=torch.float64) for _ in range(4))
    for away in (0, 1, 3):
        bend = blocks.Bend(range(24, 32), range(24 - 8 * away, 32 - 8 * away), cap=1.5)
        _, lse = blocks.block(q, k, v, bend=bend)
        blocks.block_gradients(out, q, k, v, out, lse, bend=bend)
    assert compiled.frame_count == 2


@pytest.mark.slow
def test_plain_attention_needs_no_compiler(compiled: CompileCounterWithBackend) -> None:
    leaves, _ = given({}, s=12)
    same(attention.fused(*leaves), attention.unfused(*leaves), leaves)
    assert compiled.frame_count == 0


@pytest.mark.parametrize("s", [64, 128, 200, 1024])
@pytest.mark.parametrize("window", [None, 1, 127, 128, 129, 130, 256, 257, 5000])
def test_blocks(s: int, window: int | None) -> None:
    ours = flex.block_mask(s, window, torch.device("cpu"))
    theirs = flex_attention.create_block_mask(ours.mask_mod, 1, 1, s, s, device="cpu")
    assert ours.shape == theirs.shape
    for kind in ("kv", "full_kv", "q", "full_q"):
        counts = getattr(ours, f"{kind}_num_blocks")
        assert torch.equal(counts, getattr(theirs, f"{kind}_num_blocks"))
        lists = [getattr(one, f"{kind}_indices")[0, 0] for one in (ours, theirs)]
        for count, mine, other in zip(counts[0, 0].tolist(), *lists, strict=True):
            assert torch.equal(mine[:count], other[:count])


@pytest.mark.parametrize("window", [None, 1, 100, 128, 300])
@pytest.mark.parametrize("chunk", [64, 128, 200])
def test_blocks_of_some_rows(chunk: int, window: int | None) -> None:
    """Every block that a query sees into is there, and a block that counts as whole is."""
    rows, s = (range(chunk, 2 * chunk), range(6 * chunk, 7 * chunk)), 8 * chunk
    ours = flex.block_mask(2 * chunk, window, torch.device("cpu"), s, rows)
    at = torch.cat([torch.arange(one.start, one.stop) for one in rows])
    seen = (torch.arange(s) <= at[:, None]) & (at[:, None] - torch.arange(s) < (window or s))
    for i in range(-(-2 * chunk // 128)):
        some = ours.kv_indices[0, 0, i, : ours.kv_num_blocks[0, 0, i]].tolist()
        whole = ours.full_kv_indices[0, 0, i, : ours.full_kv_num_blocks[0, 0, i]].tolist()
        for j in range(-(-s // 128)):
            part = seen[128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
            assert j in whole + some or not part.any()
            assert j not in whole or part.all()


# ── ALiBi ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 25, 112])
def test_slopes(heads: int) -> None:
    """As BLOOM's, which come through float32, from the biases of its keys."""
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    biases = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    ours = attention.slopes(heads, like=torch.zeros(1, dtype=torch.float64))
    assert ours.dtype == torch.float64
    torch.testing.assert_close(ours.float(), biases, rtol=1e-5, atol=0)
    assert attention.slopes(heads, like=torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32
