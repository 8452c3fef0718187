"""The comparisons without ranks: pieces of weights, scales, and what was sent."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime.axes import Grid  # noqa: E402
from parlay.runtime.compare import FAR, Comparison, Comparisons, Weight, vanishing  # noqa: E402
from parlay.runtime.sent import compare_sent, members  # noqa: E402

GRID = Grid((("tp", 2), ("dp", 2), ("pp", 2)))


def weight(name: str = "w", *, tp_dim: int | None = None, padded_rows: int = 0) -> Weight:
    return Weight(name=name, shape=(3, 4), tp_dim=tp_dim, stage=0, padded_rows=padded_rows)


# ── Pieces and errors ─────────────────────────────────────────────────────────


def test_piece_of_a_weight() -> None:
    whole = torch.arange(1.0, 13.0).view(3, 4)
    assert torch.equal(weight().piece(whole, rank=1, size=2), whole)
    assert torch.equal(weight(tp_dim=1).piece(whole, rank=1, size=2), whole[:, 2:])
    padded = weight(tp_dim=0, padded_rows=1)
    assert torch.equal(padded.piece(whole, rank=0, size=2), whole[:2])
    last = torch.stack((whole[2], torch.zeros(4)))
    assert torch.equal(padded.piece(whole, rank=1, size=2), last)


@pytest.mark.parametrize(
    ("found", "scale", "error"),
    [(1.0, 1.0, 0.0), (1.0 + 2e-9, 2.0, 1e-9), (float("nan"), 1.0, FAR), (float("inf"), 1.0, FAR)],
)
def test_error_is_relative_to_the_scale(found: float, scale: float, error: float) -> None:
    comparison = Comparison(what="gradient")
    a, b = torch.tensor([found, 1.0], dtype=torch.float64), torch.ones(2).double()
    comparison.add("w", a, b, scale=scale, where="here")
    assert comparison.result()["max_relative_error"] == pytest.approx(error, rel=1e-6)
    assert comparison.passed == (error == 0.0)


def test_zero_is_matched_by_zero_alone() -> None:
    comparison = Comparison(what="gradient")
    zero = torch.zeros(2).double()
    comparison.add("w", zero, zero, scale=0.0, where="here")
    assert comparison.passed
    comparison.add("w", zero + 1e-300, zero, scale=0.0, where="here")
    assert not comparison.passed


def test_sentences_are_few() -> None:
    comparison = Comparison(what="gradient")
    for _ in range(20):
        comparison.fault("w", "is missing", "rank 0")
    assert len(comparison.failures()) == 9
    assert comparison.failures()[-1] == "gradient: 12 more"


def test_nothing_compared_is_not_passed() -> None:
    assert not Comparison(what="gradient").passed
    assert Comparison(what="gradient").failures() == ["no gradient was compared"]


# ── Gradients that are rounding ───────────────────────────────────────────────


def record(gradient: float, *, trained: float = 1e-13, bias_gradient: float = 1e-18) -> Any:
    """Of a rank with a weight and a bias of a key."""
    w, b = torch.ones(3, 4).double(), torch.zeros(3).double()
    return {
        "initial": {"w": w, "b": b},
        "losses": [1.0],
        "norms": [1.0],
        "gradients": [[("w", None, w * gradient), ("b", None, b + bias_gradient)]],
        "weights": {"w": w, "b": b + trained},
    }


def compared(found: Any) -> Comparisons:
    expected = record(0.5)
    expected["gradients"] = [{name: one for name, _, one in expected["gradients"][0]}]
    rows = [weight(), Weight(name="b", shape=(3,), tp_dim=None, stage=0, padded_rows=0)]
    return Comparisons([found], grid=Grid(()), weights=rows, reference=expected)


def test_rounding_is_not_compared_with_rounding() -> None:
    assert vanishing([{"w": torch.ones(2), "b": torch.full((2,), 1e-17)}]) == {"b"}
    found = compared(record(0.5, trained=-2e-13, bias_gradient=-3e-18))
    assert all(one.passed for one in found.by_name().values())


def test_gradient_in_the_place_of_rounding_is_told() -> None:
    found = compared(record(0.5, trained=1e-3, bias_gradient=1e-9))
    assert found.gradients.worst == found.final.worst == "b"
    assert not found.gradients.passed
    assert not found.final.passed


# ── What was sent ─────────────────────────────────────────────────────────────


def row(group: str, calls: int, size: int, **fields: Any) -> dict[str, Any]:
    amounts = {"group": group, "calls": calls, "bytes": size}
    return {"collective": "all_reduce", "dtype": "float64", **amounts, **fields}


def test_groups_are_the_same_if_their_members_are() -> None:
    assert members("world", GRID) == "tp_dp_pp"
    assert members("pp_tp", GRID) == members("tp_pp", GRID) == "tp_pp"
    alone = Grid((("tp", 2), ("dp", 1), ("pp", 2)))
    assert members("world", alone) == members("tp_pp", alone) == "tp_pp"
    assert members("unknown", GRID) == "unknown"


def test_rows_of_one_group_under_two_names_are_one() -> None:
    grid = Grid((("dp", 2),))
    predicted = [row("dp", 1, 80, stage=0), row("world", 1, 8, stage=0)]
    counts = [[[row("dp", 2, 88)]]] * 2
    rows, wrong = compare_sent(counts, predicted=predicted, grid=grid)
    assert not wrong
    (found,) = rows
    assert (found["group"], found["calls"], found["predicted_bytes"]) == ("dp", 2, 88)


def test_each_stage_has_its_own_prediction() -> None:
    grid = Grid((("pp", 2),))
    predicted = [row("pp", 1, 8, stage=0), row("pp", 2, 16, stage=1)]
    counts = [[[row("pp", 1, 8)]], [[row("pp", 1, 8)]]]
    rows, wrong = compare_sent(counts, predicted=predicted, grid=grid)
    assert wrong == [
        "all_reduce over pp (float64): 1 calls with 8 bytes, predicted 2 with 16, "
        "on rank 1 (pp 1) in step 0"
    ]
    assert [(one["stage"], one["calls"], one["predicted_calls"]) for one in rows] == [
        (0, 1, 1),
        (1, 1, 2),
    ]


@pytest.mark.parametrize(
    "ran",
    [
        [],
        [row("dp", 1, 16)],
        [row("dp", 2, 8)],
        [row("dp", 1, 8, dtype="float32")],
        [row("dp", 1, 8, collective="all_gather")],
        [row("unknown", 1, 8)],
        [row("dp", 1, 8), row("unknown", 1, 8)],
    ],
)
def test_every_difference_is_told_of_the_rank_and_step_it_is_in(ran: list[Any]) -> None:
    right = [row("dp", 1, 8)]
    counts = [[right, right], [right, ran]]
    predicted = [row("dp", 1, 8, stage=0)]
    rows, wrong = compare_sent(counts, predicted=predicted, grid=Grid((("dp", 2),)))
    assert wrong
    assert all(told.endswith("on rank 1 (dp 1) in step 1") for told in wrong)
    different = [one for one in rows if one["bytes"] != one["predicted_bytes"]]
    different += [one for one in rows if one["calls"] != one["predicted_calls"]]
    assert different
