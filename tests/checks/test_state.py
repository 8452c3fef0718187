"""State per GPU: published figures, and the fullest stage of uneven ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.ledger.state import State, bytes_per_parameter, states


def _states(text: str, folder: Path) -> tuple[State, ...]:
    path = folder / "run.par"
    path.write_text(text)
    [phase] = pipeline.load(path).phases
    layout = pipeline.lay_out(phase)
    assert layout is not None
    return states(phase.spec, layout)


def _text(params: str, parallel: str, gpus: int, gradients: str = "bf16", more: str = "") -> str:
    return (
        f"model {{ params = {params} }}\n"
        f"cluster {{ nodes = {gpus // 8}, node {{ gpus = 8, gpu {{ memory = 80GB }} }} }}\n"
        f"parallel {{ {parallel} }}\n"
        f"train {{ seq = 1Ki, micro_batch = 1, global_batch = 64, gradients = {gradients}\n"
        f"  {more} }}\n"
    )


@pytest.mark.parametrize(
    ("zero", "published"),
    [(0, 120.0e9), (1, 31.40625e9), (2, 16.640625e9), (3, 1.875e9)],
)
def test_figure_1_of_the_zero_paper(zero: int, published: float, tmp_path: Path) -> None:
    """7.5 B parameters over 64 ranks, 16 bytes a parameter."""
    [state] = _states(_text("7.5B", f"zero = {zero}", 64), tmp_path)
    assert state.total == pytest.approx(published, rel=1e-9)


@pytest.mark.parametrize(
    ("params", "zero", "published"),
    [("7.5B", 0, 3.75e9), ("70B", 0, 35.0e9), ("175B", 0, 87.5e9), ("7.5B", 1, 2.34375e9)],
)
def test_even_split_over_tp_and_pp(
    params: str, zero: int, published: float, tmp_path: Path
) -> None:
    [state] = _states(_text(params, f"tp = 8, pp = 4, zero = {zero}", 64), tmp_path)
    assert state.total == pytest.approx(published, rel=1e-9)


@pytest.mark.parametrize(
    ("more", "total"),
    [
        ("", 16),
        ("master = none optimizer = adamw(lr = 1e-3, states = bf16, kahan = on)", 12),
        ("master = none optimizer = adamw(lr = 1e-3)", 12),
        ("optimizer = adamw(lr = 1e-3, states = bf16)", 12),
        ("optimizer = sgd(lr = 1e-3)", 8),
        ("optimizer = sgd(lr = 1e-3, momentum = 0.9)", 12),
        ("precision = fp32", 14),
        ("lora(rank = 8)", 2),
    ],
)
def test_bytes_a_parameter(more: str, total: int, tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_text(_text("1B", "zero = 0", 8, more=more))
    [phase] = pipeline.load(path).phases
    assert bytes_per_parameter(phase.spec.train).total == total


def test_default_is_18_bytes() -> None:
    assert bytes_per_parameter(None).total == 18


@pytest.mark.parametrize(
    ("zero", "largest"), [(0, 6.666667e9), (1, 16.0e9), (2, 24.615385e9), (3, 53.333333e9)]
)
def test_largest_model_of_the_cs336_lecture(zero: int, largest: float, tmp_path: Path) -> None:
    """12 bytes a parameter over 8 ranks fill 80 GB at the published size."""
    more = "master = none optimizer = adamw(lr = 1e-3, states = bf16, kahan = on)"
    [state] = _states(_text("1B", f"zero = {zero}", 8, more=more), tmp_path)
    assert 80e9 / state.total * 1e9 == pytest.approx(largest, rel=1e-3)


def test_ends_are_fuller_and_add_up(job: Callable[..., str], tmp_path: Path) -> None:
    """Embedding and head stand on the outer stages; all stages hold the model once."""
    each = _states(job(parallel="{ tp = 1, pp = 4 }"), tmp_path)
    assert each[0].total > each[1].total == each[2].total < each[3].total
    assert sum(state.weights for state in each) == 2 * 8_030_261_248


def test_chunks_and_offload(job: Callable[..., str], tmp_path: Path) -> None:
    plain = _states(job(parallel="{ pp = 4 }"), tmp_path)
    chunks = "{ pp = 4, schedule = interleaved(chunks = 2) }"
    assert _states(job(parallel=chunks), tmp_path) == plain
    moved = _states(job(parallel="{ pp = 4, offload = cpu(optimizer) }"), tmp_path)
    assert [state.total for state in moved] == [s.weights + s.gradients for s in plain]


LORA = "seq = 1Ki, micro_batch = 1, global_batch = 64, lora(rank = 8)"


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_adapters_are_whole_on_each_replica(
    zero: int, job: Callable[..., str], tmp_path: Path
) -> None:
    """Llama 3 8B, 64 ranks: 32 layers, each q, k, v, o, gate, up, down; masters and moments cut."""
    h, kv, f, r, ranks = 4096, 1024, 14336, 8, 64
    number = 32 * r * (4 * h + 2 * (h + kv) + 3 * (h + f))
    [state] = _states(job(parallel=f"{{ zero = {zero} }}", train=f"{{ {LORA} }}"), tmp_path)
    cut = ranks if zero else 1
    assert state.weights == 2 * 8_030_261_248 / (ranks if zero == 3 else 1) + 2 * number
    assert state.gradients == 4 * number
    assert (state.master, state.optimizer) == (4 * number / cut, 8 * number / cut)


@pytest.mark.parametrize(
    ("stack", "whole"), [("parlay", True), ("nemo-24", False), ("bridge-26.04", False)]
)
def test_what_tp_cuts_of_adapters(
    stack: str, whole: bool, job: Callable[..., str], tmp_path: Path
) -> None:
    """The side that it cuts of the matrix; of NeMo's, which are of fused linears, both sides."""
    h, kv, f, r, tp = 4096, 1024, 14336, 8, 4
    if whole:
        columns, rows = 5 * h + (h + 2 * kv + 2 * f) / tp, (h + f) / tp + 2 * h
    else:
        columns, rows = (2 * h + h + 2 * kv + 2 * f) / tp, (h + f + 2 * h) / tp
    text = job(parallel=f"{{ tp = {tp} }}", train=f'{{ {LORA} stack = "{stack}" }}')
    [state] = _states(text, tmp_path)
    assert state.gradients == 4 * 32 * r * (columns + rows)


def test_adapters_of_a_number_of_parameters_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_text(_text("700B", "zero = 0", 8, more="lora(rank = 8)"))
    [error] = pipeline.check(path).errors
    assert error.code == "M201"
    assert "adapters are not counted" in " ".join(error.notes)


def test_experts_shard_over_edp(job: Callable[..., str], tmp_path: Path) -> None:
    """Of 64 ranks ep takes 8: expert state is sharded 8 ways, dense state 64 ways."""
    moe = 'from "mixtral-8x7b"'
    whole, sharded = (
        _states(job(moe, parallel=f"{{ ep = 8, zero = {zero} }}"), tmp_path)[0] for zero in (0, 3)
    )
    experts = 32 * 3 * 4096 * 14336
    dense = whole.weights / 2 - experts
    assert sharded.weights == pytest.approx(2 * (experts / 8 + dense / 64))
