"""Messages of a step: published identities, and agreement with what the emitted code does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from parlay.compiler import pipeline
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.comm import CommLine, comm_lines
from parlay.compiler.ledger.communication import step
from parlay.compiler.spec.blocks import Spec

from tests.backends.generated import torch_job

from .jobs import job, small

ROOT = Path(__file__).parents[2]

EXPERTS = "experts { count = 8  top_k = 2  ffn = 64 }"


def lines(text: str) -> tuple[CommLine, ...]:
    return comm_lines(*job(text))


def calls(text: str, group: str, what: str = "") -> dict[str, int]:
    """Calls of a step by collective, on the first stage."""
    found: Counter[str] = Counter()
    for line in lines(text):
        if line.group == group and 0 in line.stages and (not what or line.what == what):
            found[line.collective] += line.calls_per_step
    return dict(found)


Totals = dict[tuple[int, str, str, str], tuple[int, int]]


def general(spec: Spec, layout: Layout) -> Totals:
    """Calls and bytes of a step by stage, group, collective and dtype, as the ledger has them."""
    found: Totals = {}
    for line in comm_lines(spec, layout):
        size = line.bytes_per_call * line.calls_per_step
        assert size == pytest.approx(round(size))
        for stage in line.stages:
            key = (stage, line.group, line.collective, line.dtype)
            calls, sent = found.get(key, (0, 0))
            found[key] = (calls + line.calls_per_step, sent + round(size))
    return found


def emitted(spec: Spec, layout: Layout) -> Totals:
    """The same of the emitted code, which `parlay verify` holds its ranks to."""
    return {
        (row.stage, row.group, row.collective, row.dtype): (row.calls, row.bytes)
        for row in step(spec, layout)
    }


def agrees(path: Path) -> bool:
    """Whether torch emits `path`; asserts that both tables then have the same calls and bytes."""
    checked = pipeline.check(path, ["torch"])
    for phase in () if checked.errors else checked.phases:
        layout = pipeline.lay_out(phase)
        assert layout is not None
        assert general(phase.spec, layout) == emitted(phase.spec, layout)
    return not checked.errors


@pytest.mark.slow
def test_agrees_with_the_emitted_code(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    agreed = 0
    for seed in range(100):
        path.write_text(torch_job(Random(seed)))
        agreed += agrees(path)
    assert agreed > 60


EXAMPLES = sorted({p.parents[1] for p in ROOT.glob("examples/*/compiled/torch")})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda folder: folder.name)
def test_agrees_with_every_example_that_is_emitted(example: Path) -> None:
    [path] = example.glob("*.par")
    assert agrees(path)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_four_all_reduces_a_layer_or_gathers_and_scatters() -> None:
    count = 32 // 4  # microbatches of dp = 4
    off = small("tp = 2  sequence_parallel = off")
    assert calls(off, "tp", "layers") == {"all_reduce": 4 * 8 * count}
    on = calls(small("tp = 2"), "tp", "layers")
    assert on == {"all_gather": 6 * 8 * count, "reduce_scatter": 4 * 8 * count}
    full = 'recompute = full  stack = "megatron-2025"'
    again = calls(small("tp = 2  sequence_parallel = off", full), "tp", "layers")
    assert again == {"all_reduce": 6 * 8 * count}
    # PyTorch's checkpoint stops before the MLP's sum, the last thing of a layer.
    early = calls(small("tp = 2  sequence_parallel = off", "recompute = full"), "tp", "layers")
    assert early == {"all_reduce": 5 * 8 * count}


@pytest.mark.parametrize(
    ("recompute", "again"),
    [
        ("full", (2, 2)),
        ("full(first = 3)", (2 * 3 / 8, 2 * 3 / 8)),
        ("full(every = 3)", (2 * 3 / 8, 2 * 3 / 8)),  # layers 0, 3 and 6 of 8
        ("selective(mlp)", (1, 1)),
        ("selective", (0, 0)),
    ],
)
def test_recompute_sends_again(recompute: str, again: tuple[float, float]) -> None:
    text = small("tp = 2", f'recompute = {recompute}  stack = "megatron-2025"')
    each = 8 * 32 // 4
    gathers, scatters = again
    assert calls(text, "tp", "layers") == {
        "all_gather": (6 + gathers) * each,
        "reduce_scatter": (4 + scatters) * each,
    }


@pytest.mark.parametrize(
    ("recompute", "passes"), [("none", 4), ("full", 6), ("selective(experts)", 6)]
)
def test_recomputed_experts_exchange_again(recompute: str, passes: int) -> None:
    text = small("ep = 4", f"recompute = {recompute}", model=EXPERTS)
    assert calls(text, "ep", "dispatch") == {"all_to_all": passes // 2 * 8 * 4}
    assert calls(text, "ep", "combine") == {"all_to_all": passes // 2 * 8 * 4}


def test_recomputed_attention_turns_its_ring_again() -> None:
    count = 8 * 32 // 2
    sent = {
        again: calls(small("cp = 4", f"recompute = {again}  {stack}"), "cp")["send"] / count
        for again in ("none", "selective", "selective(mlp)", "full")
        for stack in ('stack = "megatron-2025"',)
    }
    assert sent == {"none": 10, "selective": 13, "selective(mlp)": 10, "full": 13}
    # Our own kernels keep no scores that could be made again.
    assert calls(small("cp = 4", "recompute = selective"), "cp")["send"] / count == 10


def test_what_ranks_of_a_replica_share_is_summed() -> None:
    model = "kv_heads = 1  qk_norm = per_head"
    [kv] = [line for line in lines(small("tp = 4", model=model)) if line.group == "kv"]
    # Key and value of one head of 16 features, 8 layers, over the four ranks that have it alike.
    assert (kv.ranks, kv.bytes_per_call) == (4, 4 * 8 * 2 * 64 * 16)
    off = small("tp = 4  sequence_parallel = off", model=model)
    [norms] = [line for line in lines(off) if line.what == "gradients of norms inside heads"]
    assert norms.bytes_per_call == 4 * 8 * 2 * 16


def test_experts_exchange_twice_forward_and_twice_backward() -> None:
    text = small("ep = 4", model=EXPERTS)
    assert calls(text, "ep", "dispatch") == {"all_to_all": 2 * 8 * 4}
    assert calls(text, "ep", "combine") == {"all_to_all": 2 * 8 * 4}
    assert calls(text, "ep", "visits of experts") == {"all_to_all": 8 * 4}
    [first, *_] = [line for line in lines(text) if line.group == "ep"]
    assert first.bytes_per_call == 2 * 128 * 2 * 64  # bf16, tokens, top_k, hidden


def test_context_parallelism_by_method() -> None:
    count = 8 * 32 // 2  # layers and microbatches at dp = 2
    assert calls(small("cp = 4"), "cp")["send"] == (2 * 3 + 4) * count
    gathered = calls(small("cp = 4  cp_method = allgather"), "cp")
    assert gathered == {"all_gather": 2 * count, "reduce_scatter": count}
    assert calls(small("cp = 4  cp_method = ulysses"), "cp") == {"all_to_all": 6 * count}


def test_hsdp_reduces_over_replicas() -> None:
    text = small("zero = 3  shard = 4")
    kinds = {line.group for line in lines(text)}
    assert {"shard", "replicate"} <= kinds
    assert calls(text, "replicate") == {"all_reduce": 1}


def test_zero_2_and_3_multiply_by_microbatches() -> None:
    units = 8 + 2  # layers, embedding, head
    assert calls(small("zero = 2"), "dp", "gradients") == {"reduce_scatter": 4 * units}
    assert calls(small("zero = 2"), "dp", "weights") == {"all_gather": units}
    for stack in ("parlay", "torchtitan"):
        text = small("zero = 3", train=f'stack = "{stack}"')
        assert calls(text, "dp", "weights") == {"all_gather": 4 * 2 * units}
    # A tied embedding: for its own forward, and for the head's with its backward.
    tied = small("zero = 3", model="tied_embeddings = on")
    assert calls(tied, "dp", "weights") == {"all_gather": 4 * (2 * 8 + 2 + 1)}


def test_tied_gradients_meet() -> None:
    tied = small("pp = 2", model="tied_embeddings = on", gpus=2)
    found = [line for line in lines(tied) if line.group == "embedding"]
    assert [line.bytes_per_call for line in found] == [4 * 256 * 64]


def test_the_turn_of_a_v_sends_nothing() -> None:
    assert calls(small("pp = 2  schedule = zbv", gpus=2), "pp")["send"] == 2 * 32
