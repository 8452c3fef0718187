"""What stacks add to the memory ledger, each formula at three inputs against values by hand."""

from __future__ import annotations

import pytest
from parlay.compiler.ledger.memory import RankClass, account, memory

from .jobs import job

MIB = 2**20
GPUS = {
    "A100": 'gpu from "a100-sxm-80gb"',
    "H100": 'gpu from "h100-sxm-80gb"',
    "B200": 'gpu from "b200"',
}


def text(
    *,
    gpu: str = "H100",
    stack: str = "megatron",
    parallel: str = "",
    train: str = "",
    model: str = "",
    gpus: int = 8,
    seq: int = 128,
    micro: int = 1,
) -> str:
    """Eight layers of 64, four heads of 16, an MLP of 128, 256 words; tokens 128 a sequence."""
    return f"""
model {{ layers = 8  hidden = 64  heads = 4  ffn = 128  vocab = 256  {model} }}
cluster {{ node {{ gpus = {gpus}  {GPUS[gpu]} }} }}
parallel {{ {parallel} }}
train {{
  seq = {seq}  micro_batch = {micro}  global_batch = {32 * micro}  stack = "{stack}"  {train}
}}
"""


def lines(each: RankClass) -> dict[str, int]:
    """Bytes of the lines of the loss, by name."""
    [loss] = [moment for moment in each.moments if moment.name == "loss"]
    return {line.name: line.value_bytes for line in loss.lines}


def saved(source: str, *, experts: bool = False) -> dict[str, int]:
    """Bytes of what one layer keeps, by name."""
    [found] = [each for each in account(*job(source)).layers if each.experts == experts]
    return {row.name: row.value_bytes for row in found.saved}


EXPERTS = "experts { count = 8  top_k = 2  ffn = 96 }"


@pytest.mark.parametrize(
    ("gpu", "words", "model", "held"),
    [
        # Two of cuBLAS: 8320 KiB, or 32 MiB; Transformer Engine's: 4 or 32 MiB, five where grouped.
        ("A100", "", "", 2 * 8320 * 1024 + 4 * MIB),
        ("A100", "-deterministic", "", (2 * 32 + 4) * MIB),
        ("H100", "", "", (2 * 32 + 32) * MIB),
        ("H100", "-2025-deterministic", "", (2 * 32 + 32) * MIB),
        ("A100", "-deterministic-local", "", 2 * 32 * MIB),
        ("A100", "", EXPERTS, 2 * 8320 * 1024 + 5 * 4 * MIB),
        ("B200", "", EXPERTS, (2 * 32 + 5 * 32) * MIB),
        ("B200", "-sequential", EXPERTS, (2 * 32 + 32) * MIB),
    ],
)
def test_workspaces(gpu: str, words: str, model: str, held: int) -> None:
    [each] = memory(*job(text(gpu=gpu, stack=f"megatron{words}", model=model)))
    assert lines(each)["workspaces"] == held


def test_stacks_without_libraries_count_none() -> None:
    for stack in ("parlay", "torchtitan", "deepspeed-deterministic-masks"):
        [each] = memory(*job(text(stack=stack)))
        assert not {"workspaces", "attention masks", "rounding of the allocator"} & set(lines(each))


@pytest.mark.parametrize(
    ("gpu", "words", "parallel", "twice"),
    [
        ("A100", "", "tp = 1", 2 * 128 * 64),
        ("A100", "", "tp = 2", 2 * 128 * 32),
        ("A100", "-local", "tp = 1", 0),
        ("A100", "", "cp = 2", 0),
        ("H100", "-deterministic", "tp = 1", 0),
        ("B200", "", "tp = 1", 0),
        ("B200", "-deterministic", "tp = 1", 2 * 128 * 64),
    ],
)
def test_flash_attention_2_keeps_its_output_in_its_own_order(
    gpu: str, words: str, parallel: str, twice: int
) -> None:
    source = text(gpu=gpu, stack=f"megatron{words}", parallel=parallel)
    assert saved(source).get("attention output, its own order", 0) == twice
    math = text(gpu=gpu, stack=f"megatron{words}", parallel=parallel, train="attention = math")
    assert "attention output, its own order" not in saved(math)


@pytest.mark.parametrize(
    ("seq", "micro", "parallel", "held"),
    [
        (128, 1, "", 2 * 128 * 128),
        (256, 3, "", 2 * 3 * 256 * 256),
        (256, 1, "cp = 4", 2 * 64 * 256),
    ],
)
def test_masks_of_this_microbatch_and_the_last(
    seq: int, micro: int, parallel: str, held: int
) -> None:
    for words, value in (("-masks", held), ("", 0)):
        source = text(seq=seq, micro=micro, parallel=parallel, stack=f"megatron{words}")
        assert lines(memory(*job(source))[0]).get("attention masks", 0) == value


@pytest.mark.parametrize(
    ("seq", "micro", "parallel", "held"),
    [
        # bf16 scores of the heads of one rank.
        (128, 1, "", 2 * 4 * 128 * 128),
        (128, 2, "tp = 2", 2 * 2 * 2 * 128 * 128),
        (256, 1, "tp = 4", 2 * 1 * 256 * 256),
    ],
)
def test_own_layers_share_one_buffer_of_scores(
    seq: int, micro: int, parallel: str, held: int
) -> None:
    for words, kernel, value in (("-local", "math", held), ("-local", "flash", 0), ("", "math", 0)):
        source = text(
            seq=seq,
            micro=micro,
            parallel=parallel,
            stack=f"megatron{words}",
            train=f"attention = {kernel}",
        )
        assert lines(memory(*job(source))[0]).get("scores' shared buffer", 0) == value


@pytest.mark.parametrize(
    ("parallel", "train", "layers"),
    [
        ("", "", 8),
        ("pp = 4", "", 2),  # one microbatch on the last stage
        ("pp = 2  schedule = interleaved(chunks = 2)", "", (2 + 1) * 2),  # three in flight, of two
        ("", "recompute = full(first = 3)", 5),
    ],
)
def test_the_allocator_rounds_up_each_kept_layer(parallel: str, train: str, layers: int) -> None:
    last = memory(*job(text(parallel=parallel, train=train)))[-1]
    assert lines(last)["rounding of the allocator"] == layers * 3 * MIB // 2


@pytest.mark.parametrize(
    ("parallel", "micro", "logits"),
    [("", 1, 128 * 256), ("tp = 2", 1, 128 * 128), ("tp = 4", 3, 3 * 128 * 64)],
)
def test_a_fused_loss_keeps_logits_twice(parallel: str, micro: int, logits: int) -> None:
    for words, each in (("", 4), ("-fused_loss", 8)):
        source = text(parallel=parallel, micro=micro, stack=f"megatron{words}")
        kept = lines(memory(*job(source))[0])["probabilities of the loss"]
        assert kept == each * logits


@pytest.mark.parametrize(
    ("stack", "kept", "passing"),
    [
        ("torchtitan", 4, 8),
        ("torchtitan-compile", 4, 8),
        ("torchtitan-compile-fused_loss", 2, 2),
        ("llmfoundry", 2, 2),
        ("megatron", 4, 2),
        ("parlay-fused_loss", 4, 8),
    ],
)
@pytest.mark.parametrize("vocab", [256, 384, 1024])
def test_bytes_of_a_logit(stack: str, kept: int, passing: int, vocab: int) -> None:
    found = lines(memory(*job(text(stack=stack).replace("vocab = 256", f"vocab = {vocab}")))[0])
    assert found["probabilities of the loss"] == kept * 128 * vocab
    assert found["logits while the loss runs"] == passing * 128 * vocab


@pytest.mark.parametrize(("stack", "passing"), [("torchtitan", 12), ("megatron", 2)])
def test_a_loss_in_parallel_holds_four_copies_of_its_logits(stack: str, passing: int) -> None:
    """torch's backward of it: log-softmax (kept), zeros and ones, exponentials, their sum."""
    [only] = memory(*job(text(stack=stack, parallel="tp = 2")))
    found = lines(only)
    assert found["probabilities of the loss"] == 4 * 128 * 128
    assert found["logits while the loss runs"] == passing * 128 * 128


@pytest.mark.parametrize(
    ("top_k", "ffn", "parallel", "visits", "features"),
    [
        (2, 96, "", 2 * 128, 96),
        (1, 64, "ep = 4", 128, 64),
        # tokens of a rank are halved by sequence parallelism and doubled by etp
        (2, 96, "tp = 2  etp = 2", 2 * 128, 48),
    ],
)
def test_probabilities_weigh_a_plain_activation(
    top_k: int, ffn: int, parallel: str, visits: int, features: int
) -> None:
    model = f"experts {{ count = 8  top_k = {top_k}  ffn = {ffn} }}"
    plain = saved(text(model=model + " activation = gelu", parallel=parallel), experts=True)
    assert plain["expert activation, weighed"] == 2 * visits * features
    assert plain["expert activation input"] == 2 * visits * features
    assert "expert output" not in plain
    gated = saved(text(model=model, parallel=parallel), experts=True)
    assert "expert activation, weighed" not in gated and "expert output" not in gated
    eager = saved(text(model=model, parallel=parallel, stack="deepspeed"), experts=True)
    assert eager["expert output"] == 2 * visits * 64


@pytest.mark.parametrize(
    ("model", "parallel", "features"),
    [
        # Input, q, v, the MLP's first product and its last, attention's output.
        ("", "", 64 + 64 + 64 + 128 + 64 + 64),
        ("kv_heads = 2", "", 64 + 64 + 32 + 128 + 64 + 64),
        # A plain MLP has its first product in place five, its last is made again.
        ("activation = gelu", "", 64 + 64 + 64 + 128 + 64),
        ("", "tp = 2", 32 + 32 + 32 + 64 + 64 + 32),
    ],
)
def test_selective_by_operator(model: str, parallel: str, features: int) -> None:
    source = text(stack="torchtitan", model=model, parallel=parallel, train="recompute = selective")
    heads = 2 if parallel else 4
    [layer] = account(*job(source)).layers
    assert layer.kept_bytes == 2 * 128 * features + 4 * heads * 128
    named = account(*job(source.replace("selective", "selective(norm)"))).layers[0].kept_bytes
    assert named > layer.kept_bytes


def test_experts_of_one_rank_exchange_nothing_that_is_kept() -> None:
    """The policy keeps outputs of collectives: tokens sent and brought back, 2 a token, 64 wide."""
    model = "experts { count = 8  top_k = 2  ffn = 96 }"
    alone, spread = (
        account(
            *job(text(stack="torchtitan", model=model, parallel=p, train="recompute = selective"))
        )
        for p in ("", "ep = 4")
    )
    kept = [one.layers[-1].kept_bytes for one in (alone, spread)]
    assert kept[1] - kept[0] == 2 * 2 * (2 * 128) * 64


def test_a_generation_is_no_matter_of_memory() -> None:
    plain, dated = (
        account(*job(text(stack=stack))).worst.peak_bytes for stack in ("megatron", "megatron-2024")
    )
    assert plain == dated


@pytest.mark.parametrize(
    ("parallel", "micro", "vocab", "held"),
    [
        # G = 2 x 128 tokens x 64, its half S, W = 2 x 64 x half of the words.
        ("tp = 2", 1, 256, 2 * 16384 + 8192),
        ("tp = 2", 3, 256, 3 * (3 * 16384) + 3 * 8192),  # in two orders
        ("tp = 2", 1, 1024, 8192 + 16384 + 65536),
        ("tp = 2  sequence_parallel = off", 3, 256, 3 * 16384 + 16384),
        ("", 1, 256, 16384 + 32768),
    ],
)
def test_the_head_holds_its_gathered_input(
    parallel: str, micro: int, vocab: int, held: int
) -> None:
    source = text(stack="parlay", parallel=parallel, micro=micro)
    [each] = memory(*job(source.replace("vocab = 256", f"vocab = {vocab}")))
    [head] = [moment for moment in each.moments if moment.name == "backward of the head"]
    assert head.categories["temporaries"] == held


@pytest.mark.parametrize(
    ("parallel", "micro", "stream"),
    [("", 1, 2 * 128 * 64), ("tp = 2", 3, 3 * 128 * 64), ("pp = 2", 2, 2 * 2 * 128 * 64)],
)
def test_the_final_norm_is_behind_the_layers_backward(
    parallel: str, micro: int, stream: int
) -> None:
    last = memory(*job(text(stack="parlay", parallel=parallel, micro=micro)))[-1]
    held = {moment.name: moment.categories["activations"] for moment in last.moments}
    assert held["loss"] - held["backward"] == 2 * stream
