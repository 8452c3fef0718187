"""The backward of the emitted code, each formula at three inputs against values by hand.

S is a tensor of the residual stream, O, Q and P outputs, queries, and keys with values, F what the
feed-forward half has saved, which is gone; all in bytes, of 64 features at 16 bits.
"""

from __future__ import annotations

import pytest
from parlay.compiler.ledger.memory import backward, put_off, temporaries
from parlay.compiler.ledger.memory.layer import layer
from parlay.compiler.ledger.memory.sizes import sizes_of

from .jobs import job


def text(
    model: str = "", parallel: str = "", *, ffn: int = 128, kv: int = 4, seq: int = 128
) -> str:
    """Four heads of 16, unless told otherwise."""
    return f"""
model {{ layers = 8  hidden = 64  heads = 4  kv_heads = {kv}  ffn = {ffn}  vocab = 256  {model} }}
cluster {{ node {{ gpus = 8  gpu {{ memory = 80GB }} }} }}
parallel {{ {parallel} }}
train {{ seq = {seq}  micro_batch = 1  global_batch = 32 }}
"""


def most(source: str, *, experts: bool = False) -> tuple[str, int]:
    """Where the backward of a layer holds most beside what was saved, and how much."""
    sizes = sizes_of(job(source)[0])
    line = backward.most(sizes, layer(sizes, experts=experts), experts=experts)
    return line.name.removeprefix("backward of "), line.value_bytes


def saved(source: str, *, experts: bool = False) -> dict[str, int]:
    """Bytes of what one layer keeps, by name."""
    sizes = sizes_of(job(source)[0])
    return {row.name: row.value_bytes for row in layer(sizes, experts=experts)}


@pytest.mark.parametrize(
    ("experts", "parallel", "where", "held"),
    [
        # S, rows of the experts less what came back (as many), an inner tensor, two matrices.
        ("ffn = 96", "ep = 4", "experts' last matrix", 16384 + 2 * 256 * 96 + 2 * 2 * 64 * 96),
        # Narrow experts: S and the visits.
        ("ffn = 16", "ep = 4", "sum of experts' outputs", 16384 + 2 * 256 * 64),
        ("ffn = 16  shared = 1", "ep = 4", "sum of experts' outputs", 2 * 16384 + 2 * 256 * 64),
        # Half of the tokens, twice the rows, half of each matrix of eight experts.
        (
            "ffn = 96",
            "tp = 2  etp = 2",
            "experts' last matrix",
            8192 - 16384 + 32768 + 2 * 256 * 48 + 2 * 8 * 48 * 64,
        ),
        # Rows of both ranks, twice, beside the piece of the stream.
        ("ffn = 16", "tp = 2  etp = 2", "exchange of experts' rows", 8192 + 2 * 32768),
    ],
)
def test_experts(experts: str, parallel: str, where: str, held: int) -> None:
    source = text(f"experts {{ count = 8  top_k = 2  {experts} }}", parallel)
    assert most(source, experts=True) == (where, held)


@pytest.mark.parametrize(
    ("parallel", "model", "ffn", "kv", "held"),
    [
        # S + 2 Q + 5 Q, and 5 + 2 of keys and values, less F: of two ranks none is under way.
        ("cp = 2", "", 128, 4, 8 * 8192 + 7 * 16384 - (8 * 64 * 128 + 2 * 8192 + 256)),
        ("cp = 4", "", 128, 4, 8 * 4096 + 8 * 8192 - (8 * 32 * 128 + 2 * 4096 + 128)),
        ("cp = 2", "", 64, 2, 8 * 8192 + 7 * 8192 - (8 * 64 * 64 + 2 * 8192 + 256)),
    ],
)
def test_ring(parallel: str, model: str, ffn: int, kv: int, held: int) -> None:
    source = text(model, f"{parallel}  cp_method = ring", ffn=ffn, kv=kv)
    assert most(source) == ("the ring", held)


@pytest.mark.parametrize(
    ("parallel", "model", "ffn", "kv", "held"),
    [
        # Keys and values of both ranks 5.5 times and once more; S, Q.
        ("cp = 2", "", 128, 4, 2 * 8192 + 13 * 16384 - (8 * 64 * 128 + 2 * 8192 + 256)),
        ("cp = 4", "", 16, 1, 2 * 4096 + 26 * 2048 - (8 * 32 * 16 + 2 * 4096 + 128)),
        # Computed again: 3.5 times; S, O, Q.
        (
            "cp = 2",
            "window(size = 32)",
            128,
            4,
            3 * 8192 + 7 * 16384 - (8 * 64 * 128 + 2 * 8192 + 256),
        ),
    ],
)
def test_gathered_keys(parallel: str, model: str, ffn: int, kv: int, held: int) -> None:
    source = text(model, f"{parallel}  cp_method = allgather", ffn=ffn, kv=kv)
    assert most(source) == ("gathered keys", held)


@pytest.mark.parametrize(
    ("seq", "kv", "where", "held"),
    [
        # Q + 3 P, none of the two outputs yet.
        (128, 4, "heads for pieces of the sequence", 8192 + 3 * 16384 - 2 * 8192 - 24832),
        (256, 4, "heads for pieces of the sequence", 2 * (8192 + 3 * 16384 - 2 * 8192 - 24832)),
        # One head copied for two ranks: S, I and W of the MLP are more.
        (128, 1, "the last matrix", 8192 + 2 * 64 * 16 + 2 * 64 * 16),
    ],
)
def test_heads_for_pieces(seq: int, kv: int, where: str, held: int) -> None:
    source = text(parallel="cp = 2  cp_method = ulysses", ffn=16, kv=kv, seq=seq)
    assert most(source) == (where, held)


MLA = "mla { kv_rank = 32  nope_dim = 32  rope_dim = 16  v_dim = 32 }"


@pytest.mark.parametrize(
    ("model", "kv", "held"),
    [
        # S, O and Q, P, less F = 49664.
        ("head_dim = 64", 4, 16384 + 2 * 65536 + 131072 - 49664),
        ("head_dim = 64", 1, 16384 + 2 * 65536 + 32768 - 49664),
        (MLA, 4, 16384 + 32768 + 49152 + (49152 + 32768) - 49664),
    ],
)
def test_scores_of_wide_heads(model: str, kv: int, held: int) -> None:
    assert most(text(model, ffn=16, kv=kv)) == ("scores", held)


@pytest.mark.parametrize(
    ("model", "parallel", "held"),
    [
        # S, and scores twice in fp32, less O and F.
        ("", "", 16384 + 2 * 4 * 4 * 128 * 128 - 16384 - (8 * 128 * 128 + 2 * 16384 + 512)),
        (
            "sinks = on",
            "",
            16384 + 2 * 4 * 4 * 128 * 129 - 16384 - (8 * 128 * 128 + 2 * 16384 + 512),
        ),
        ("", "tp = 2", 8192 + 2 * 4 * 2 * 128 * 128 - 16384 / 2 - (8 * 128 * 64 + 2 * 8192 + 256)),
    ],
)
def test_scores_written_out(model: str, parallel: str, held: int) -> None:
    source = text(model, parallel).replace("seq =", "attention = math  seq =")
    assert most(source) == ("scores", held)


def test_what_is_computed_again_later() -> None:
    """Scores are not there yet while the MLP's backward runs, nor the activation of experts where
    their outputs are added up."""
    wide = text(ffn=16384).replace("seq =", "attention = math  recompute = selective  seq =")
    # S, two of I, less scores and fp32 queries, keys and values that attention makes later.
    later = 4 * 4 * 128 * 128 + 4 * 128 * 4 * 3 * 16
    assert most(wide) == ("the activation", 16384 + 2 * 2 * 128 * 16384 - later)
    experts = text("experts { count = 8  top_k = 2  ffn = 16 }", "ep = 4")
    again = experts.replace("seq =", "recompute = selective(activation)  seq =")
    # S and the visits, less the two tensors that are not there yet.
    assert most(again, experts=True) == ("sum of experts' outputs", 49152 - 2 * 2 * 256 * 16)


@pytest.mark.parametrize(
    ("top_k", "parallel", "routing", "output"),
    [
        # Scores and their sum in fp32; 30 bytes a visit, and 16 a row that is exchanged.
        (2, "ep = 4", 4 * 128 * 9 + 30 * 256 + 16 * 256, 2 * 256 * 64),
        (1, "", 4 * 128 * 8 + 30 * 128, 2 * 128 * 64),
        (2, "tp = 2  etp = 2", 4 * 64 * 9 + 30 * 128 + 16 * 256, 2 * 128 * 64),
    ],
)
def test_what_routing_keeps(top_k: int, parallel: str, routing: int, output: int) -> None:
    source = text(f"experts {{ count = 8  top_k = {top_k}  ffn = 96 }}", parallel)
    kept = saved(source, experts=True)
    assert kept["router scores and probabilities"] == routing
    assert kept["expert output"] == output


@pytest.mark.parametrize(
    ("parallel", "model", "kv", "more", "keys"),
    [
        ("cp = 2  cp_method = ring", "sinks = on", 4, 8192, 4),
        ("cp = 4  cp_method = ulysses", "", 2, 4096, 4),
        ("cp = 2  cp_method = allgather", "window(size = 32)  sinks = on", 4, None, 4),
    ],
)
def test_what_attention_over_cp_keeps(
    parallel: str, model: str, kv: int, more: int | None, keys: int
) -> None:
    kept = saved(text(model, parallel, kv=kv))
    tokens = 128 // int(parallel[5])
    assert kept.get("attention output, in the order of cp") == more
    assert kept["q, k and v"] == 2 * tokens * (4 + 2 * keys) * 16
    assert ("log-sum-exp" in kept) == (more is not None)
    assert "attention output before its sinks" not in kept


def test_other_stacks_are_not_followed() -> None:
    spec, _ = job(text(parallel="cp = 2").replace("seq =", 'stack = "megatron"  seq ='))
    [line] = temporaries.attention_lines(sizes_of(spec))
    assert line.value_bytes == 2 * 16384
    assert temporaries.attention_lines(sizes_of(job(text(parallel="cp = 2"))[0])) == ()


# ── Weight gradients that are put off ─────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "parallel", "experts", "held"),
    [
        # Inputs of both halves, gradients behind them, 640 features of heads and MLP.
        ("", "", False, 4 * 16384 + 2 * 128 * (4 * 32 + 4 * 32 + 3 * 128)),
        # Routed experts leave nothing, shared ones what an MLP does.
        ("experts { count = 8  top_k = 2  ffn = 96 }", "", True, 2 * 16384 + 2 * 128 * 256),
        (
            "experts { count = 8  top_k = 2  ffn = 96  shared = 1 }",
            "",
            True,
            4 * 16384 + 2 * 128 * (256 + 3 * 96),
        ),
        # Outputs, gradients of queries, keys and values; latents and the gradients of what they
        # are made from.
        (
            MLA,
            "",
            False,
            4 * 16384 + 2 * 128 * (4 * (32 + 48 + 64) + 3 * 128) + 2 * 128 * (32 + 48),
        ),
        # Over tp matrices of latents come at once.
        (
            MLA,
            "tp = 2",
            False,
            2 * 8192 + 2 * 16384 + 2 * 128 * (2 * (32 + 48) + 3 * 64) + 2 * 64 * 48,
        ),
    ],
)
def test_what_is_left_for_weight_gradients(
    model: str, parallel: str, experts: bool, held: int
) -> None:
    assert put_off.layer(sizes_of(job(text(model, parallel))[0]), experts=experts)[0] == held


@pytest.mark.parametrize(
    ("model", "parallel", "held"),
    [
        ("", "", 2 * 64 * 128),
        # The last matrix, while the input of the first ones is gathered.
        ("", "tp = 2", 2 * 64 * 64 + 16384),
        # Of routed experts none: attention's last matrix, as wide as its queries.
        ("experts { count = 8  top_k = 2  ffn = 96 }", "", 2 * 64 * 64),
    ],
)
def test_weight_gradients(model: str, parallel: str, held: int) -> None:
    [line] = put_off.weights(sizes_of(job(text(model, parallel))[0]))
    assert line.value_bytes == held


def test_a_first_half_has_no_weight_gradients() -> None:
    """S, and three inner tensors: the product's gradient and those of both that made it."""
    sizes = sizes_of(job(text())[0])
    line = backward.most(sizes, layer(sizes, experts=False), experts=False, put_off=True)
    assert line.value_bytes == 16384 + 3 * 2 * 128 * 128
