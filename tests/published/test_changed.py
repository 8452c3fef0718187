"""No figure is an echo: for each formula, changed inputs against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import (
    FABRIC,
    FIRST,
    KAHAN,
    LAYER,
    MEMORY,
    _links,
    _wire,
    at,
    gathers,
    layers,
    piped,
    preset,
    priced,
    states,
    traffic,
    useful,
    whole_run,
)
from .test_published import printed

pytestmark = pytest.mark.slow

SELECTIVE = "attention = math  recompute = selective"
WITHOUT = "sequence_parallel = off"
PIPE = "phases.0.pipeline."
REDUCED = "phases.0.communication.[collective=all_reduce]."
TREE = "phases.0.communication.[algorithm=tree].latency_steps"
FLOOR = "phases.0.communication_totals.gather_floor_elements"
RATIO = "phases.0.links.link_over_nic"
CASES: dict[str, list[tuple[str, str, float]]] = {
    # N · (4 + 12/d) and so on, at 16 bytes a parameter
    "zero 0": [
        (states("1B"), FIRST, 16e9),
        (states("3B", 2, "tp = 2"), FIRST, 24e9),
        (states("2B", 1, "", ""), FIRST, 36e9),
    ],
    "zero 1": [
        (states("1B", 1, "zero = 1"), FIRST, 1e9 * (4 + 12 / 8)),
        (states("8B", 2, "zero = 1"), FIRST, 8e9 * (4 + 12 / 16)),
        (states("8B", 2, "zero = 1  shard = 4"), FIRST, 8e9 * (4 + 12 / 4)),
    ],
    "zero 2": [
        (states("1B", 1, "zero = 2"), FIRST, 1e9 * (2 + 14 / 8)),
        (states("8B", 2, "zero = 2"), FIRST, 8e9 * (2 + 14 / 16)),
        (states("1B", 1, "zero = 2", ""), FIRST, 1e9 * (2 + 16 / 8)),
    ],
    "zero 3": [
        (states("1B", 1, "zero = 3"), FIRST, 2e9),
        (states("8B", 4, "zero = 3"), FIRST, 4e9),
        (states("8B", 1, "zero = 3  shard = 2"), FIRST, 64e9),
    ],
    "largest model": [
        (states("1B", 1, "zero = 1", ""), MEMORY + "state.largest_params", 80e9 / (6 + 12 / 8)),
        (states("1B", 2, "zero = 3", KAHAN), MEMORY + "state.largest_params", 80e9 * 16 / 12),
        (states("1B", 1, "tp = 8"), MEMORY + "state.largest_params", 8 * 5e9),
    ],
    "cards for the state": [
        (states("7B"), MEMORY + "state.gpus_needed", 2),
        (states("5B"), MEMORY + "state.gpus_needed", 1),
        (states("100B", train=""), MEMORY + "state.gpus_needed", 23),
    ],
    # s·b·h·(34 + 5·a·s/h) and its relatives
    "linear part": [
        (layers(hidden=4096, heads=32, seq=2048), LAYER + "linear_bytes", 34 * 2048 * 4096),
        (layers(hidden=5120, heads=40, seq=4096), LAYER + "linear_bytes", 34 * 4096 * 5120),
        (layers(hidden=8192, heads=64, seq=1024), LAYER + "linear_bytes", 34 * 1024 * 8192),
    ],
    "square part": [
        (layers(hidden=4096, heads=32, seq=2048), LAYER + "square_bytes", 5 * 32 * 2048**2),
        (layers(hidden=4096, heads=16, seq=4096), LAYER + "square_bytes", 5 * 16 * 4096**2),
        (layers(seq=1024, tp=4), LAYER + "square_bytes", 5 * 64 * 1024**2 / 4),
    ],
    "crossover": [
        (layers(hidden=4096, heads=32, seq=2048), LAYER + "crossover_tokens", 34 * 4096 / 160),
        (layers(hidden=5120, heads=40, seq=1024), LAYER + "crossover_tokens", 34 * 5120 / 200),
        (layers(hidden=8192, heads=32, seq=1024), LAYER + "crossover_tokens", 34 * 8192 / 160),
    ],
    "tp without sequence parallelism": [
        (
            layers(hidden=4096, heads=32, seq=2048, tp=tp, parallel=WITHOUT, train=SELECTIVE),
            LAYER + "bytes",
            2048 * 4096 * (10 + 24 / tp),
        )
        for tp in (2, 4, 8)
    ],
    "tp with sequence parallelism": [
        (
            layers(hidden=4096, heads=32, seq=2048, tp=tp),
            LAYER + "bytes",
            2048 * 4096 / tp * (34 + 5 * 32 * 2048 / 4096),
        )
        for tp in (2, 4, 8)
    ],
    "full recompute": [
        (
            layers(hidden=hidden, heads=32, seq=seq, train="recompute = full"),
            LAYER + "bytes",
            2 * seq * hidden,
        )
        for hidden, seq in ((4096, 2048), (4096, 512), (8192, 1024))
    ],
    # (p - 1)/(m + p - 1), (p - 1)/(m·v)
    "bubble": [
        (piped("one_f_one_b", 2, 4), PIPE + "bubble", 1 / 5),
        (piped("gpipe", 8, 8), PIPE + "bubble", 7 / 15),
        (piped("interleaved(chunks = 2)", 4, 8), PIPE + "bubble_over_ideal", 3 / 16),
    ],
    "idle": [
        (piped("one_f_one_b", 4, 8), PIPE + "idle", 9),
        (piped("zero_bubble", 4, 8), PIPE + "idle", 3),
        (piped("dualpipe", 4, 8), PIPE + "idle", 2),
    ],
    "in flight": [
        (piped("one_f_one_b", 4, 2), PIPE + "in_flight.0", 2),
        (piped("one_f_one_b", 8, 16), PIPE + "in_flight.5", 3),
        (piped("dualpipe", 4, 8), PIPE + "in_flight.2", 5),
    ],
    "messages": [
        (piped("interleaved(chunks = 2)", 4, 8), PIPE + "messages", 2),
        (piped("interleaved(chunks = 3)", 4, 8, layers=12), PIPE + "messages", 3),
        (piped("one_f_one_b", 4, 8), PIPE + "messages", 1),
    ],
    "zero's traffic": [
        (
            traffic(3).replace("global_batch = 8", "global_batch = 16"),
            "phases.0.communication_totals.data_parallel_relative_to_plain",
            3.0 / 1,  # two gathers and a scatter of M, each of two microbatches: 6M over 2M
        ),
        (
            traffic(2).replace("global_batch = 8", "global_batch = 32"),
            "phases.0.communication_totals.data_parallel_relative_to_plain",
            (4 + 1) / 2,
        ),
        (
            traffic(1).replace("gradients = bf16", "gradients = fp32"),
            "phases.0.communication_totals.data_parallel_relative_to_plain",
            (4 + 2) / 8,
        ),
    ],
    "cache": [
        (preset("llama3-8b"), "phases.0.inference.kv_bytes_per_token", 2 * 32 * 8 * 128 * 2),
        (preset("deepseek-v2"), "phases.0.inference.kv_bytes_per_token", 576 * 2 * 60),
        (
            preset("llama3-8b", "context = 1Ki"),
            "phases.0.inference.kv_bytes_full_context",
            2 * 32 * 8 * 128 * 2 * 1024,
        ),
    ],
}
GIB = 2**30
CASES |= {
    # S / B
    "transfer": [
        (_links("225GB/s", "200Gb/s"), FABRIC.format("link"), GIB / 225e9 * 1e3),
        (_links("225GB/s", "200Gb/s"), FABRIC.format("nic"), GIB / 25e9 * 1e3),
        (_links("450GB/s", "10Gb/s"), FABRIC.format("nic"), GIB / 1.25e9 * 1e3),
        (
            _links("450GB/s", "400Gb/s").replace("63GB/s", "32GB/s"),
            FABRIC.format("host"),
            GIB / 32e9 * 1e3,
        ),
        (
            _links("450GB/s", "400Gb/s").replace("3350GB/s", "4800GB/s"),
            FABRIC.format("memory"),
            GIB / 4.8e12 * 1e3,
        ),
    ],
    "link over card": [
        (_links("300GB/s", "200Gb/s"), RATIO, 12),
        (_links("900GB/s", "400Gb/s"), RATIO, 18),
        (_links("300GB/s", "200Gb/s"), RATIO + "_as_quoted", 24),
    ],
    # 2M(N - 1)/N in 2(N - 1) steps; a tree in 2·log2 N
    "ring": [
        (_wire(1, 4, "1B"), REDUCED + "wire_bytes_per_call", 2 * 2e9 * 3 / 4),
        (_wire(1, 2, "1B"), REDUCED + "wire_bytes_per_call", 2e9),
        (_wire(1, 4, "1B"), REDUCED + "latency_steps", 6),
        (_wire(1, 16, "1B"), REDUCED + "latency_steps", 30),
    ],
    "tree": [
        (_wire(2, params="1k"), TREE, 8),
        (_wire(4, params="1k"), TREE, 10),
        (_wire(16, params="1k"), TREE, 14),
    ],
    # alpha·B·N / 5 % / width
    "gather floor": [
        (gathers("10us"), FLOOR, 10e-6 * 25e9 * 16 / 0.05 / 4),
        (gathers(nodes=4), FLOOR, 66e6),
        (gathers(precision="bf16"), FLOOR, 66e6),
    ],
}


def steps(count: int, nodes: int) -> str:
    """Llama 3.1 405B for so many steps of 2,048 sequences."""
    return whole_run('from "llama3.1-405b"', nodes, f"global_batch = 2048  steps = {count}")


STATED: list[tuple[str, str, str, float]] = [
    # work / speed / GPUs, and the shares that follow
    (steps(1, 1024), "phases.0.time.mfu", "38%", 0.38),
    (steps(1, 1024), "phases.0.time.step_seconds", "12.5s", 12.5),
    (steps(1, 1024), "phases.0.time.tokens_per_second_per_gpu", "200", 200),
    (steps(86400, 1024), "phases.0.run.days", "10s", 10),
    (steps(36, 2048), "phases.0.run.gpu_hours", "200s", 2 * 16384),
    (priced(36, 128, "3$/h"), "phases.0.run.cost", "100s", 3 * 1024),
    (priced(18, 256, "1$/h"), "phases.0.run.cost", "400s", 2 * 2048),
    (priced(36), "phases.0.run.cost", "50s", 2048),
    (useful("1057s"), "phases.0.goodput.useful_mfu", "20%", 0.2 * 0.9),
    (useful("10min"), "phases.0.goodput.useful_mfu", "41%", 0.41 * (0.9 + 457 / 11135)),
    (useful("1057s").replace("54d", "27d"), "phases.0.goodput.useful_share", "41%", 0.8),
]


@pytest.mark.parametrize(("par", "path", "speed", "expected"), STATED)
def test_changed_speed(par: str, path: str, speed: str, expected: float, tmp_path: Path) -> None:
    value = printed(par, at(speed), path, tmp_path)
    assert value == pytest.approx(expected, rel=4e-3 if "goodput" in path else 1e-9)


FLAT = [(name, *case) for name, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(
    ("name", "par", "path", "expected"), FLAT, ids=[f"{f[0]}-{i}" for i, f in enumerate(FLAT)]
)
def test_changed(name: str, par: str, path: str, expected: float, tmp_path: Path) -> None:
    value = printed(par, "ledger FILE --json", path, tmp_path)
    assert value == pytest.approx(expected, rel=1e-6)
