"""Runs that no efficiency was fitted on: the command reads them, and how well it prices them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

import accuracy
import rows

PUBLIC = Path(accuracy.__file__).with_name("public_runs.csv")
MEDIANS = {
    "by_source": {
        "llmfoundry": 0.05,
        "mosaicgpt": 0.05,
        "zerobubble": 0.05,
        "nemo_docs": 0.09,
        "dgxc": 0.11,
        "megatron_bridge": 0.13,
        "torchtitan": 0.14,
        "flagperf": 0.16,
        "megatron_moe_zoo": 0.20,
        "nemo_automodel": 0.20,
        "nanotron": 0.40,
    },
    "by_class": {"dense_bf16": 0.05, "dense_fp8": 0.09, "finetune": 0.19, "moe": 0.18},
    "by_class_accelerator": {"dense_bf16/A100": 0.05, "dense_fp8/H100": 0.08},
}
"""What holds with some room; a row of a class that does worse tells where the model is wrong."""


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    found, _ = accuracy.document(PUBLIC)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("table", MEDIANS)
def test_runs_that_no_fit_has_seen(figures: dict[str, Any], table: str) -> None:
    for name, most in MEDIANS[table].items():
        assert figures[table][name]["median"] < most, name


@pytest.mark.slow
def test_a_tenth_of_the_mixtures_at_most_is_far_off(figures: dict[str, Any]) -> None:
    assert figures["by_class"]["moe"]["p90"] < 0.45


@pytest.mark.slow
def test_it_tells_runs_apart_better_than_a_flat_guess(figures: dict[str, Any]) -> None:
    flat = figures["baseline"]
    for name in ("dense_bf16", "dense_fp8", "moe"):
        assert figures["by_class"][name]["median"] < 0.6 * flat["by_class"][name]["median"]
    assert figures["ranking"]["pairs_right"] > 0.75 > flat["ranking"]["pairs_right"]
    assert figures["ranking"]["mean_regret"] < 0.01


@pytest.mark.slow
def test_few_rows_are_left_out_and_all_say_why(figures: dict[str, Any]) -> None:
    assert figures["skipped"] == {
        "micro-batch not stated": 8,
        "schedule ZB-2p is not in the language": 6,
        "contradicts itself": 2,
        "precision not modelled": 1,
    }
    assert figures["all"]["count"] >= 300


def test_every_run_stands_once_and_has_an_address() -> None:
    found = rows.read(PUBLIC)
    assert len({row["id"] for row in found}) == len(found) >= 300
    assert all(row["source_url"].startswith("https://") for row in found)
    columns = ("hidden", "layers", "gpu", "gpus", "tp", "pp", "vpp", "cp", "ep", "seq", "precision")
    more = ("micro_batch", "global_batch_seqs", "step_time_s", "tokens_per_s_per_gpu", "notes")
    same = Counter(tuple(row[name] for name in (*columns, *more)) for row in found)
    assert max(same.values()) == 1


@pytest.mark.slow
def test_equal_ranks_hold_what_is_told(figures: dict[str, Any]) -> None:
    """What nanotron logs as allocated, of sixteen ranks that hold the same."""
    named = figures["memory_by_source"]
    assert "nanotron, reserved" not in named
    assert named["nanotron, allocated"]["count"] == 2
    assert named["nanotron, allocated"]["worst"] < 0.15
