"""Messages of a step: published identities, and agreement with what the emitted code does."""

from __future__ import annotations

from collections import Counter

import pytest
from parlay.compiler.ledger.comm import CommLine, comm_lines
from parlay.compiler.ledger.communication import step

from .jobs import job, small

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


@pytest.mark.parametrize(
    "parallel", ["tp = 2", "tp = 2  sequence_parallel = off", "pp = 2", "tp = 2  pp = 2", ""]
)
def test_agrees_with_the_emitted_code(parallel: str) -> None:
    spec, layout = job(small(parallel))
    general: Counter[tuple[int, str, str]] = Counter()
    for line in comm_lines(spec, layout):
        for stage in line.stages:
            if line.group in ("tp", "pp") and line.what != "gradient norm":
                size = line.bytes_per_call * line.calls_per_step
                general[stage, line.group, line.collective] += int(size)
    emitted: Counter[tuple[int, str, str]] = Counter()
    for row in step(spec, layout):
        # A clipped norm over one axis alone is told as that axis' group.
        if row.group in ("tp", "pp") and not (row.calls == 1 and row.bytes == 4):
            emitted[row.stage, row.group, row.collective] += row.bytes
    lone = 4 if parallel.startswith(("tp", "pp")) and "pp" not in parallel[1:] else 0
    for key, size in emitted.items():
        assert abs(general[key] - size) <= lone, key


def test_four_all_reduces_a_layer_or_gathers_and_scatters() -> None:
    count = 32 // 4  # microbatches of dp = 4
    off = small("tp = 2  sequence_parallel = off")
    assert calls(off, "tp", "layers") == {"all_reduce": 4 * 8 * count}
    on = calls(small("tp = 2"), "tp", "layers")
    assert on == {"all_gather": 6 * 8 * count, "reduce_scatter": 4 * 8 * count}
    again = calls(small("tp = 2  sequence_parallel = off", "recompute = full"), "tp", "layers")
    assert again == {"all_reduce": 6 * 8 * count}


def test_experts_exchange_twice_forward_and_twice_backward() -> None:
    text = small("ep = 4", model=EXPERTS)
    assert calls(text, "ep") == {"all_to_all": 4 * 8 * 4}
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
    assert calls(small("zero = 3"), "dp", "weights") == {"all_gather": 2 * 4 * units}


def test_tied_gradients_meet() -> None:
    tied = small("pp = 2", model="tied_embeddings = on", gpus=2)
    found = [line for line in lines(tied) if line.group == "embedding"]
    assert [line.bytes_per_call for line in found] == [4 * 256 * 64]


def test_the_turn_of_a_v_sends_nothing() -> None:
    assert calls(small("pp = 2  schedule = zbv", gpus=2), "pp")["send"] == 2 * 32
