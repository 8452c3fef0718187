"""What a moment counts is what its lines say, and a peak what its moments: both are made later and
another way."""

from __future__ import annotations

import itertools

import pytest
from parlay.compiler.layout import lay_out
from parlay.compiler.ledger.memory import account
from parlay.compiler.spec.resolve import resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

SCHEDULES = (
    "gpipe",
    "one_f_one_b",
    "interleaved(chunks = 2)",
    "zero_bubble",
    "zbv",
    "dualpipe_v",
    "dualpipe",
)
SHAPES = {"llama3.2-1b": "", "gpt2-xl": "", "deepseek-v2-lite": "ep = 2"}
RECIPES = (
    "zero = 1",
    'zero = 3 | recompute = full(first = 2)  stack = "megatron"',
    "zero = 2 | recompute = full",
)


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_moment_is_the_sum_of_its_lines(model: str, schedule: str) -> None:
    for recipe, pp in itertools.product(RECIPES, (2, 4)):
        zero, _, recompute = recipe.partition("|")
        text = f"""
model from "{model}"
cluster {{ node from "dgx-h100" }}
parallel {{ pp = {pp}  dp = {8 // pp}  {zero}  {SHAPES[model]}
  schedule = {schedule}  stages = auto }}
train {{ seq = 1024  micro_batch = 1  global_batch = 64  steps = 1  {recompute} }}
"""
        [phase], told = resolve(parse(Source("job.par", text))[0], lambda _: (None, ()))
        assert not told, [each.message for each in told]
        found = account(phase.spec, lay_out(phase.spec))
        for each in found.classes:
            assert each.moments[-1].name == "optimizer step"
            fullest = max(moment.value_bytes for moment in each.moments)
            assert each.peak_bytes == fullest, (recipe, pp, each.stage)
            for moment in each.moments:
                counted = sum(line.value_bytes for line in moment.lines)
                assert moment.value_bytes == counted, (recipe, pp, each.stage, moment.name)
                assert all(line.value_bytes for line in moment.lines)
