"""The weight table against what the models' makers published."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from parlay.compiler.catalog import names
from parlay.compiler.ledger.parameters import active, matrix_parameters, total
from parlay.compiler.spec.blocks import Model

Build = Callable[..., Model]

with (Path(__file__).parent / "model_totals.csv").open(encoding="utf-8") as _file:
    FACTS = {row["name"]: row for row in csv.DictReader(_file)}

EXACT = {name: int(row["exact"]) for name, row in FACTS.items() if row["exact"]}
FORMULA = {name: int(row["formula"]) for name, row in FACTS.items() if row["formula"]}
ACTIVE = {name: int(row["formula_active"]) for name, row in FACTS.items() if row["formula_active"]}
PUBLISHED = {name: float(row["published_b"]) for name, row in FACTS.items() if row["published_b"]}


def test_facts_are_the_catalogs_models() -> None:
    assert set(FACTS) == set(names("model"))
    assert len(EXACT) == 35


@pytest.mark.parametrize("name", EXACT)
def test_exact_totals(name: str, preset_model: Build) -> None:
    assert total(preset_model(name)) == EXACT[name]


@pytest.mark.parametrize("name", FORMULA)
def test_totals_by_formula(name: str, preset_model: Build) -> None:
    # PaLM has no bias in its norms (arXiv:2204.02311, section 2); the formula counts one for each
    # of its 118 layers and one for the last norm.
    biases = 119 * 18432 if name == "palm-540b" else 0
    assert total(preset_model(name)) == FORMULA[name] - biases


@pytest.mark.parametrize("name", ACTIVE)
def test_active_by_formula(name: str, preset_model: Build) -> None:
    assert active(preset_model(name)) == ACTIVE[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_totals(name: str, preset_model: Build) -> None:
    # The 5B and 20B of GPT-3's training configurations are names more than counts.
    within = 0.014 if name in ("gpt3-5b", "gpt3-20b") else 0.012
    assert total(preset_model(name)) == pytest.approx(PUBLISHED[name] * 1e9, rel=within)


def test_deepseek_v3_with_its_second_token_is_the_checkpoint(preset_model: Build) -> None:
    # The checkpoint of 684,489,845,504 parameters repeats embedding and head for that layer.
    model = preset_model("deepseek-v3", mtp_layers=1)
    copies = 2 * model.vocab * model.hidden
    assert total(model) + copies == 684_489_845_504


@pytest.mark.parametrize(("name", "billions"), [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)])
def test_active_without_the_embedding(name: str, billions: float, preset_model: Build) -> None:
    # gpt-oss's model card counts active parameters without the embedding.
    assert round(matrix_parameters(preset_model(name)) / 1e9, 2) == billions
