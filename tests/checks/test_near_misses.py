"""Layouts at the edge of each rule: those that look wrong and are legal, and those just beyond."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.dsl.diagnostics import Diagnostic, Severity

Check = Callable[[str], tuple[Diagnostic, ...]]
MOE = 'from "mixtral-8x7b"'
QWEN = 'from "qwen3-30b-a3b"'
RACK = '{ nodes = 4, node from "gb200-nvl72" }'
SLOW = '{ nodes = 8, node from "dgx-h100" { nic { count = 1, bandwidth = 25Gb/s } } }'
BATCH = "{ seq = 8Ki, micro_batch = 1, global_batch = 256 }"
FULL = "{ seq = 8Ki, micro_batch = 1, global_batch = 256, recompute = full }"


def train(seq: int = 8192, micro: int = 1, batch: int = 256, more: str = "") -> str:
    return f"{{ seq = {seq}, micro_batch = {micro}, global_batch = {batch} {more}}}"


@pytest.mark.parametrize(
    ("blocks", "codes"),
    [
        # world
        ({"parallel": "{ tp = 8, pp = 8, dp = 1, stages = auto }"}, []),
        ({"parallel": "{ tp = 8, pp = 8, dp = 1 }"}, ["S209"]),
        ({"parallel": "{ tp = 8, pp = 8, dp = 2 }"}, ["L201"]),
        ({"parallel": "{ tp = 8, pp = 5 }"}, ["L201", "L206"]),
        ({"parallel": "{ tp = 128 }"}, ["L201", "L202", "L203"]),
        ({"cluster": "{ node from \"laptop\" }", "parallel": "{ tp = 16 }"}, ["L201", "L203"]),
        # heads: all key/value heads of a group copied is legal, a share of one is not
        ({"model": 'from "llama3-8b" { kv_heads = 4 }'}, ["L203"]),
        ({"model": 'from "llama3-8b" { kv_heads = 1 }'}, ["L203"]),
        (
            {"model": 'from "llama3-8b" { heads = 36, head_dim = 128, kv_heads = 12 }'},
            ["L202", "L203"],
        ),
        ({"model": 'from "llama3-8b" { heads = 12, kv_heads = 12, head_dim = 64 }'}, ["L202"]),
        # experts in every layer leave ffn without a meaning
        ({"model": f"{MOE} {{ ffn = 11_010 }}", "parallel": "{ tp = 8, ep = 8, zero = 1 }"}, []),
        # layers
        ({"parallel": "{ tp = 8, pp = 4, schedule = interleaved(chunks = 8) }"}, []),
        ({"parallel": "{ tp = 8, pp = 4, schedule = interleaved(chunks = 3) }"}, ["L206"]),
        ({"parallel": "{ tp = 4, pp = 16, schedule = interleaved(chunks = 4) }"}, ["L206"]),
        ({"parallel": "{ tp = 4, pp = 8, stages = [4, 5, 5, 5, 5, 4, 3, 1] }"}, []),
        ({"parallel": "{ tp = 4, pp = 8, stages = [3, 4, 4, 4, 5, 5, 4, 3] }"}, ["S209"]),
        ({"parallel": "{ tp = 4, pp = 8, stages = auto }"}, []),
        ({"parallel": "{ tp = 1, pp = 64, stages = auto }"}, ["L209"]),
        ({"parallel": "{ tp = 8, pp = 2, stages = [16, 8, 9] }"}, ["L207", "L208"]),
        ({"parallel": "{ tp = 8, pp = 2, stages = [32, 0] }"}, ["L209"]),
        # batch
        ({"train": train(batch=8)}, []),
        ({"train": train(batch=4)}, ["L210"]),
        ({"train": train(micro=3, batch=256)}, ["L210"]),
        # sequence
        ({"train": train(seq=8188)}, ["L211"]),
        ({"train": train(seq=8188), "parallel": "{ tp = 8, sequence_parallel = off }"}, []),
        ({"train": train(seq=8190), "parallel": "{ tp = 2, cp = 2 }"}, ["L212"]),
        ({"train": train(seq=8190), "parallel": "{ tp = 2, cp = 3, dp = 8 }"}, ["L201"]),
        ({"train": train(seq=8188), "parallel": "{ tp = 4, cp = 2 }"}, ["L213"]),
        ({"train": train(seq=8184), "parallel": "{ tp = 2, cp = 4, cp_method = ulysses }"}, []),
        # experts
        ({"model": MOE, "parallel": "{ tp = 2, pp = 2, ep = 8 }"}, []),
        ({"model": MOE, "parallel": "{ tp = 8, pp = 8, ep = 8 }"}, []),  # ep beyond dp
        ({"model": MOE, "parallel": "{ tp = 8, pp = 2, ep = 3 }"}, ["L216", "L217"]),
        ({"model": QWEN, "cluster": RACK, "parallel": "{ tp = 2, pp = 2, ep = 8 }"}, []),
        ({"model": QWEN, "cluster": RACK, "parallel": "{ tp = 2, pp = 2, ep = 16 }"}, ["L217"]),
        ({"parallel": "{ tp = 8, etp = 2 }"}, ["L225"]),
        # order
        ({"parallel": "{ tp = 8, order = [tp, dp] }"}, []),
        ({"parallel": "{ tp = 8, pp = 4, order = [tp, cp, pp, dp] }"}, []),
        ({"parallel": "{ tp = 8, pp = 4, order = [tp, ep, pp, dp] }"}, []),
        (
            {"model": MOE, "parallel": "{ tp = 8, pp = 4, etp = 8, order = [tp, pp, dp] }"},
            [],
        ),
        (
            {"model": MOE, "parallel": "{ tp = 8, pp = 4, ep = 8, order = [tp, ep, pp, dp] }"},
            [],
        ),
        ({"parallel": "{ tp = 8, order = [dp, tp] }"}, ["N201"]),
        # shard
        ({"parallel": "{ zero = 3, shard = 8 }"}, []),
        ({"parallel": "{ zero = 3, cp = 4, shard = 2 }", "train": BATCH}, ["M204"]),
        ({"parallel": "{ zero = 3, cp = 4, shard = 32 }", "train": BATCH}, []),
        ({"parallel": "{ zero = 3, shard = 24 }"}, ["L222"]),
        # positions
        ({"train": train(seq=16384)}, ["L224"]),
        (
            {
                "model": 'from "llama3-8b" { rope(theta = 5e5, scaling = 4) }',
                "train": train(seq=32768),
            },
            [],
        ),
        (
            {
                "model": 'from "llama3-8b" { rope_scaling = dynamic(factor = 4) }',
                "train": train(seq=32768),
            },
            [],
        ),
        (
            {
                "model": 'from "llama3-8b" { rope_scaling = llama3(factor = 4) }',
                "train": train(seq=32768),
            },
            ["L224"],
        ),
        # Ulysses
        ({"parallel": "{ tp = 8, cp = 4, cp_method = ulysses }"}, []),
        ({"parallel": "{ tp = 8, cp = 8, cp_method = ulysses }"}, ["L227"]),
        (
            {"parallel": "{ tp = 8, cp = 8, cp_method = ulysses_ring(inner = 4, outer = 2) }"},
            [],
        ),
        # topology
        ({"cluster": RACK, "parallel": "{ tp = 16, sequence_parallel = off }"}, ["L203"]),
        ({"cluster": '{ node from "a100-pcie-pairs" }', "parallel": "{ tp = 2 }"}, []),
        ({"cluster": '{ node from "a100-pcie-pairs" }', "parallel": "{ tp = 4 }"}, ["N201"]),
        # gathers of the shards: none of experts that every rank has its own of
        ({"model": QWEN, "parallel": "{ zero = 3, ep = 8 }", "train": FULL}, ["N208"]),
        (
            {
                "model": 'from "qwen3-30b-a3b" { experts { node_limit = 4 } }',
                "parallel": "{ zero = 3, ep = 64 }",
                "train": FULL,
            },
            ["N202"],
        ),
        # gradients of stage 2: once a microbatch, over the nodes
        ({"cluster": SLOW, "parallel": "{ zero = 2 }", "train": FULL}, ["N212"]),
        (
            {
                "cluster": SLOW,
                "parallel": "{ zero = 2 }",
                "train": train(batch=64, more=", recompute = full "),
            },
            ["N213"],
        ),
        ({"cluster": SLOW, "parallel": "{ zero = 1 }", "train": FULL}, []),
        ({"cluster": SLOW, "parallel": "{ zero = 2, shard = 8 }", "train": FULL}, []),
        ({"parallel": "{ zero = 2 }", "train": FULL}, []),
        # pipeline
        ({"parallel": "{ tp = 8, pp = 8, stages = auto }", "train": train(batch=8)}, []),
        ({"parallel": "{ tp = 8, pp = 8, stages = auto }", "train": train(batch=7)}, ["S201"]),
        ({"parallel": "{ tp = 8, schedule = one_f_one_b }"}, []),
        (
            {
                "parallel": "{ tp = 8, pp = 2, schedule = interleaved(chunks = 2) }",
                "train": train(batch=8),
            },
            [],
        ),
        (
            {
                "parallel": "{ tp = 8, pp = 2, schedule = interleaved(chunks = 2) }",
                "train": train(batch=12),
            },
            ["S202"],
        ),
        # ZeRO
        ({"parallel": "{ tp = 8, zero = 2 }", "train": BATCH}, []),
        ({"parallel": "{ tp = 8, pp = 2, zero = 2 }", "train": train(batch=4)}, ["S201"]),
        ({"parallel": "{ tp = 8, pp = 8, zero = 1 }", "train": BATCH}, ["S209", "W202"]),
        ({"parallel": "{ tp = 8, pp = 8, zero = 1, stages = auto, offload = cpu(optimizer) }",
          "train": BATCH}, []),
    ],
)  # fmt: skip
def test_codes(
    blocks: dict[str, str], codes: list[str], job: Callable[..., str], check: Check
) -> None:
    told = check(job(**blocks))
    assert [each.code for each in told] == codes, told


def test_severity_of_tp_beyond_the_domain(job: Callable[..., str], check: Check) -> None:
    """An error where a faster wire lies unused, a warning where a node has none."""
    many = '{ nodes = 2, node from "rtx-4090-8" }'
    [inside] = check(job(cluster='{ node from "rtx-4090-8" }', parallel="{ tp = 2, zero = 3 }"))
    [across] = check(job('from "llama2-7b"', cluster=many, parallel="{ tp = 16 }"))
    [unused] = check(job(cluster='{ node from "a100-pcie-pairs" }', parallel="{ tp = 4 }"))
    told = [(each.code, each.severity) for each in (inside, across, unused)]
    error, warning = Severity.ERROR, Severity.WARNING
    assert told == [("N201", warning), ("N201", error), ("N201", error)]


def test_severity_of_positions_beyond_the_context(job: Callable[..., str], check: Check) -> None:
    [learned] = check(job('from "gpt2-xl"', parallel="{ tp = 1 }", train=train(seq=2048)))
    [rotary] = check(job(train=train(seq=16384)))
    assert (learned.severity, rotary.severity) == ("error", "warning")


def test_copied_heads_are_a_note(job: Callable[..., str], check: Check) -> None:
    [copied] = check(job('from "llama3-8b" { kv_heads = 4 }'))
    assert copied.severity == "note"
    assert copied.message == "each key/value head stands on 2 TP ranks"


def test_open_degrees_are_not_asked_about(job: Callable[..., str], check: Check) -> None:
    told = check(job(parallel="{ tp = auto, pp = 3 }"))
    assert [each.code for each in told] == ["T114", "L206", "L233"]
    assert told[2].notes == ("no choice makes tp · cp · pp · dp = 64",)
    told = check(job(parallel="{ tp = auto, pp = 4, zero = 4 }"))
    assert [each.code for each in told] == ["T114", "L223"], "not told again for every choice"


def test_model_by_its_parameters_alone(job: Callable[..., str], check: Check) -> None:
    """Published: 16 N / (tp · pp) = 87.5e9 bytes must not pass for 80e9."""
    gpu = "node { gpus = 8, gpu { memory = 80_000MB } }"
    text = job("{ params = 175B }", f"{{ nodes = 8, {gpu} }}", "{ tp = 8, pp = 4 }")
    [found] = check(text)
    assert found.code == "M201"
    assert not check(job("{ params = 70B }", f"{{ nodes = 8, {gpu} }}", "{ tp = 8, pp = 4 }"))
