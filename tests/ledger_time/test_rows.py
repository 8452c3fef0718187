"""Rows of published runs as specs, the split, and the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

import accuracy  # noqa: E402
import fit  # noqa: E402
import row_spec  # noqa: E402
import rows  # noqa: E402
import scoring  # noqa: E402
import split  # noqa: E402
import words as words_of  # noqa: E402
from stacks import stack_of  # noqa: E402

KEYS = {
    "step_time": {"count", "median", "p90", "worst"},
    "memory": {"count", "median", "p90", "worst"},
    "ranking": {"groups", "median_regret", "mean_regret", "pairs_right", "kendall_tau"},
    "out_of_memory": {"stated", "told_right"},
    "unstated": {"count", "median", "p90"},
    "skipped": set(),
    "by_class": {"dense_bf16", "dense_fp8", "moe"},
    "by_class_accelerator": {"dense_bf16/A100", "dense_bf16/H100"},
    "by_source": {"llmfoundry", "dgxc"},
    "baseline": {"step_time", "ranking", "by_class"},
}


@pytest.fixture(scope="module")
def cases(runs_csv: Path) -> list[rows.Case]:
    return [c for c in map(rows.case_of, rows.read(runs_csv)) if isinstance(c, rows.Case)]


def test_every_row_is_scored_or_has_a_reason(runs_csv: Path, cases: list[rows.Case]) -> None:
    _, skipped = accuracy.cases_of(runs_csv)
    assert len(cases) + sum(skipped.values()) == len(rows.read(runs_csv))
    for reason in (
        "accelerator not modelled",
        "shape not stated",
        "speed not stated",
        "micro-batch not stated",
        "repeats another row",
        "schedule ZB-2p is not in the language",
    ):
        assert skipped[reason] >= 1


def test_a_renamed_row_is_priced_the_same(runs_csv: Path, cases: list[rows.Case]) -> None:
    for case in cases:
        other = case.row | {
            "id": "x-1",
            "source_group": "elsewhere",
            "source_url": "",
            "model": "some model",
            "stack": stack_of(case.row),
        }
        renamed = rows.case_of(other)
        assert isinstance(renamed, rows.Case)
        assert accuracy.predict(renamed).predicted == accuracy.predict(case).predicted


def test_no_fit_sees_the_group_of_its_test(cases: list[rows.Case]) -> None:
    tested: list[int] = []
    for seen, test in split.folds(cases):
        assert not {cases[i].group for i in seen} & {cases[i].group for i in test}
        assert not set(seen) & set(test)
        tested += test
    assert sorted(tested) == list(range(len(cases)))


@pytest.mark.parametrize("fold", range(split.FOLDS))
def test_every_fold_has_its_table(fold: int) -> None:
    assert accuracy.table(fold)["family"]["h100"]["gemm"] > 0.3


@pytest.mark.parametrize(
    ("layers", "steps", "stages"),
    [(126, 16, (7, *[8] * 14, 7)), (32, 8, None), (22, 8, (2, *[3] * 6, 2))],
)
def test_embedding_and_head_count_as_a_layer(
    layers: int, steps: int, stages: tuple[int, ...] | None
) -> None:
    assert row_spec.uneven(layers, steps) == stages


def test_uneven_stages_hold_every_layer() -> None:
    for layers in range(4, 130):
        for steps in range(2, layers + 1):
            stages = row_spec.uneven(layers, steps)
            assert stages is None or (sum(stages) == layers and min(stages) >= 1)


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ("fp8 (hybrid delayed)", "fp8"),
        ("FP8-MX", "mxfp8"),
        ("NVFP4", "nvfp4"),
        ("amp_bf16", "bf16"),
        ("", "bf16"),
        ("fp16", "fp16"),
    ],
)
def test_precisions(words: str, precision: str) -> None:
    assert words_of.precision(words) == precision


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("full (uniform)", "full"),
        ("none ([])", "none"),
        ("selective (core attention)", "selective"),
    ],
)
def test_recomputes(words: str, name: str) -> None:
    assert words_of.recompute(words).name == name


def test_the_catalog_fills_in_what_has_no_column(cases: list[rows.Case]) -> None:
    deepseek = next(c for c in cases if c.row["model"] == "deepseek-v3")
    model = deepseek.spec.model
    assert model is not None and model.mla is not None and model.experts is not None
    assert (model.experts.shared, model.experts.dense_layers) == (1, 3)


def test_a_fit_finds_a_factor_that_was_put_in(cases: list[rows.Case]) -> None:
    some = [case for case in cases if case.accelerator == "A100"]
    table = fit.prior()
    made = fit.problem(some, table)
    key = next(i for i, k in enumerate(made.keys) if k == ("family", "a100", "gemm"))
    truth = np.zeros(len(made.keys))
    truth[key] = 0.1
    made.measured = (made.parts * np.exp(made.moves @ truth)).sum(1)
    found = fit.solve(made, np.zeros(len(made.keys)))
    predicted = (made.parts * np.exp(made.moves @ found)).sum(1)
    assert np.abs(np.log(predicted / made.measured)).max() < 0.03


def test_the_order_of_layouts_is_scored(cases: list[rows.Case]) -> None:
    right = scoring.ranking([scoring.Scored(case, case.tokens) for case in cases])
    wrong = scoring.ranking([scoring.Scored(case, 1 / case.tokens) for case in cases])
    assert right["groups"] >= 2
    assert (right["mean_regret"], right["pairs_right"]) == (0.0, 1.0)
    assert wrong["mean_regret"] > 0.05 and wrong["pairs_right"] == 0.0


def test_the_report_has_every_key(runs_csv: Path) -> None:
    command = [sys.executable, accuracy.__file__, str(runs_csv), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(ran.stdout)
    for name, keys in KEYS.items():
        assert keys <= set(figures[name]), name
    assert 0 < figures["by_class"]["dense_bf16"]["median"] < 0.15
    stated, rest = figures["step_time"]["count"], figures["unstated"]["count"]
    assert stated + rest == sum(row["count"] for row in figures["by_source"].values())
