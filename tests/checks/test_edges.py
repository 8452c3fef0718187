"""The edges of the rules about units, learning, memory and open fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.dsl.diagnostics import Diagnostic, Severity

Check = Callable[[str], tuple[Diagnostic, ...]]
Job = Callable[..., str]
EP8 = "{ ep = 8, zero = 1 }"
GROUPS_7 = 'from "deepseek-v2-lite" { experts { groups = 7 } }'


def node(inside: str) -> str:
    return f'{{ nodes = 2, node from "dgx-h100" {{ {inside} }} }}'


def train(more: str = "", *, seq: str = "4Ki", micro: int = 1, batch: int = 256) -> str:
    return f"{{ seq = {seq}, micro_batch = {micro}, global_batch = {batch}, {more} }}"


@pytest.mark.parametrize(
    ("blocks", "codes"),
    [
        # thousands: in lengths and widths, not in budgets; a `let` is where the number stands
        ({"train": train(seq="8k")}, ["T201"]),
        ({"train": train(seq="8Ki")}, []),
        ({"train": train("tokens = 900B, steps = 900k")}, ["L234"]),
        ({"train": train(seq="length"), "rest": "let length = 8k\n"}, ["T201"]),
        ({"train": train(seq="8 * 1Ki")}, []),
        ({"model": 'from "llama3-8b" { window(size = 4k) }'}, ["T201"]),
        ({"model": 'from "llama3-8b" { vocab = 128k }'}, ["T201"]),
        ({"model": 'from "llama3-8b" { hidden = 4.096k }'}, ["T201"]),
        # cards, wires, peaks, memory
        ({"cluster": node("nic { bandwidth = 50GB/s }")}, []),
        ({"cluster": node("nic { bandwidth = 0.4TB/s }")}, ["N204"]),
        ({"cluster": node("nic { bandwidth = 100GB/s }")}, ["N204"]),
        ({"cluster": node("link { bandwidth = 450GB/s }")}, []),
        ({"cluster": node("link { bandwidth = 900Gb/s }")}, ["N205"]),
        ({"cluster": node("link { bandwidth = 3600Gb/s }")}, []),
        ({"cluster": node("link { bandwidth = 1800GB/s }")}, []),  # nothing is known of such a wire
        ({"cluster": node("link { kind = pcie, bandwidth = 900GB/s }")}, []),
        ({"cluster": node("gpu { bf16 = 989TFLOP/s }")}, []),
        ({"cluster": node("gpu { bf16 = 800TFLOP/s }")}, []),
        ({"cluster": node("gpu { fp8 = 1979TFLOP/s }")}, []),
        ({"cluster": node("gpu { fp8 = 3958TFLOP/s }")}, ["N206"]),
        ({"cluster": node("gpu { memory = 80GB }")}, ["M202"]),
        ({"cluster": node("gpu { memory = 80GiB }")}, ["M202"]),
        ({"cluster": node("gpu { memory = 81_559MiB }")}, []),
        ({"cluster": node("gpu { memory = 70GB }")}, []),
        ({"cluster": node("gpus = 4"), "parallel": "{ tp = 4 }"}, ["N207"]),
        # learning rates and lengths
        ({"train": train("steps = 10, lr_schedule = cosine(warmup = 10)")}, ["W207"]),
        ({"train": train("steps = 10, lr_schedule = cosine(warmup = 9)")}, []),
        ({"train": train("tokens = 1B, lr_schedule = cosine(warmup = 1000)")}, ["W207"]),
        ({"train": train("steps = 10, lr_schedule = wsd(warmup = 5, decay = 5)")}, []),
        ({"train": train("steps = 10, lr_schedule = wsd(warmup = 5, decay = 6)")}, ["W207"]),
        ({"train": train("tokens = 1Mi")}, ["W204"]),
        ({"train": train("tokens = 1k")}, ["W204"]),
        ({"train": train("tokens = 100Mi")}, []),
        ({"train": train("steps = 100, tokens = 100Mi")}, []),
        ({"train": train("steps = 5, tokens = 10", seq="1Ki", batch=8)}, ["L234", "W204"]),
        ({"train": train("optimizer = adamw(lr = 1e-3, betas = [0.9])")}, ["T203"]),
        ({"train": train("optimizer = adamw(lr = 1e-3, betas = [0, 0.99])")}, []),
        ({"train": train("optimizer = sgd(lr = 1e-3)")}, []),
        ({"train": train("optimizer = adamw(lr = 1e-5), lr_schedule = linear(min_lr = 1e-5)")}, []),
        # precision
        ({"train": train("precision = mxfp8")}, ["W210"]),
        ({"train": train("precision = fp8")}, []),
        ({"train": train(), "cluster": '{ node from "v100-8" }'}, ["W210"]),
        ({"train": train("precision = fp16"), "cluster": '{ node from "v100-8" }'}, []),
        ({"train": train("precision = fp32"), "cluster": '{ node from "mi250x-8" }'}, []),
        (
            {"train": train("precision = fp32", batch=8), "cluster": '{ node from "v100-8" }'},
            ["W208"],
        ),
        # small products
        ({"train": train(seq="128", micro=1)}, ["W205"]),
        ({"train": train(seq="128", micro=1, batch=9), "parallel": "{ tp = 4 }"}, ["L210", "W205"]),
        ({"train": train(seq="128", micro=4)}, []),
        ({"train": train(seq="2Ki"), "parallel": "{ cp = 8 }"}, ["W205", "M201"]),
        # recomputation
        ({"train": train("recompute = selective(core_attention)")}, ["W203"]),
        ({"train": train("recompute = selective, attention = math")}, []),
        # dropout
        ({"model": 'from "llama3-8b" { dropout = 0.1 }', "parallel": "{ tp = 8 }"}, ["W209"]),
        (
            {
                "model": 'from "llama3-8b" { dropout = 0.1 }',
                "parallel": "{ tp = 8, sequence_parallel = off }",
            },
            ["W209"],
        ),
        ({"model": 'from "llama3-8b" { dropout = 0.1 }', "parallel": "{ zero = 1 }"}, []),
        # groups of experts
        ({"model": GROUPS_7, "parallel": EP8}, ["L215"]),
        (
            {
                "model": 'from "deepseek-v2-lite" { experts { groups = 8, top_groups = 9 } }',
                "parallel": EP8,
            },
            ["L215"],
        ),
        (
            {
                "model": 'from "deepseek-v2-lite" { experts { groups = 16, top_groups = 1 } }',
                "parallel": EP8,
            },
            ["L215"],
        ),
        # 8-bit blocks
        (
            {
                "model": 'from "llama3-8b" { hidden = 4104, head_dim = 128 }',
                "train": train("precision = fp8"),
            },
            ["L231"],
        ),
        (
            {"model": 'from "llama3-8b" { ffn = 14_400 }', "train": train("precision = fp8")},
            ["L231"],
        ),
        (
            {
                "model": 'from "qwen3-30b-a3b" { experts { ffn = 776 } }',
                "parallel": "{ ep = 8, zero = 1 }",
                "train": train("precision = fp8, recompute = full"),
            },
            ["L231"],
        ),
        # DualPipe with an odd pipeline
        (
            {
                "model": 'from "llama2-7b" { layers = 33 }',
                "cluster": '{ nodes = 3, node from "dgx-h100" }',
                "parallel": "{ tp = 8, pp = 3, schedule = dualpipe }",
                "train": train(batch=6),
            },
            ["S205"],
        ),
        # stages
        (
            {
                "model": 'from "mixtral-8x7b" { experts { every = 8, aux_loss = 0.01 } }',
                "cluster": '{ nodes = 4, node from "dgx-h100" }',
                "parallel": "{ pp = 8, ep = 4, zero = 1 }",
            },
            ["S207"],
        ),
    ],
)  # fmt: skip
def test_codes(blocks: dict[str, str], codes: list[str], job: Job, check: Check) -> None:
    blocks = {"cluster": '{ nodes = 2, node from "dgx-h100" }', **blocks}
    assert [each.code for each in check(job(**blocks))] == codes


# ── Open fields ───────────────────────────────────────────────────────────────

OPEN = [
    ("{ tp = auto, pp = 2 }", "", None),
    ("{ tp = auto in [2, 4], pp = 2, zero = 1 }", "", None),
    ("{ tp = auto in [3] }", "", "no choice makes tp · cp · pp · dp = 16"),
    ("{ tp = auto in [16] }", "", "nearest: tp = 16"),
    ("{ tp = auto <= 3, dp = 1 }", "", "no choice makes tp · cp · pp · dp = 16"),
    ("{ tp = 8, zero = auto in [4, 5] }", "", "nearest: zero = 4"),
    ("{ tp = 8, pp = 2, schedule = auto }", train(batch=8), None),
    ("{ tp = 8, micro = 1 }", train(batch=8), None),
    (
        "{ cp = auto in [8], cp_method = auto, tp = 2 }",
        train(seq="4100", batch=2),
        "nearest: cp = 8",
    ),
    ("{ tp = 8, order = auto, pp = auto, stages = auto, zero = 1 }", "", None),
]


@pytest.mark.parametrize(("parallel", "recipe", "note"), OPEN)
def test_open_fields(parallel: str, recipe: str, note: str | None, job: Job, check: Check) -> None:
    text = job(cluster='{ nodes = 2, node from "dgx-h100" }', parallel=parallel, train=recipe)
    told = [each for each in check(text) if each.code == "L233"]
    assert bool(told) == (note is not None)
    if note is not None:
        assert told[0].notes[0].startswith(note), told[0].notes


def test_an_open_micro_batch(job: Job, check: Check) -> None:
    recipe = "{ seq = 4Ki, micro_batch = auto in [3, 5], global_batch = 16 }"
    [_, found] = check(job(cluster='{ nodes = 2, node from "dgx-h100" }', train=recipe))
    assert found.code == "L233"
    assert "rejected by L210 2 of 2" in found.notes[-1]
    good = recipe.replace("[3, 5]", "[3, 4]")
    assert [
        e.code for e in check(job(cluster='{ nodes = 2, node from "dgx-h100" }', train=good))
    ] == ["T114"]


def test_given_degrees_that_make_no_grid_are_told_alone(job: Job, check: Check) -> None:
    """What else is open cannot mend them."""
    recipe = "{ seq = 4Ki, micro_batch = 1, global_batch = 16, recompute = auto }"
    cluster = '{ nodes = 2, node from "dgx-h100" }'
    told = check(job(cluster=cluster, parallel="{ tp = 8, pp = 4 }", train=recipe))
    assert {each.code for each in told} == {"L201", "T114"}


def test_a_search_too_large_says_nothing(job: Job, check: Check) -> None:
    parallel = "{ tp = auto, pp = auto, cp = auto, ep = auto, zero = 4 }"
    told = check(job("{ params = 900B }", '{ nodes = 512, node from "dgx-h100" }', parallel))
    assert "L233" not in [each.code for each in told]


# ── Suggestions follow the file's restrictions ────────────────────────────────


def test_suggestions_keep_to_auto_in(job: Job, check: Check) -> None:
    text = job(
        'from "llama3-8b" { heads = 48, head_dim = 128, kv_heads = 6 }',
        parallel="{ tp = 8, pp = 4, dp = auto in [2, 16] }",
    )
    found = next(each for each in check(text) if each.code == "L203")
    assert found.help
    assert all("dp = 2 " in said or "dp = 16 " in said for said in found.help)


def test_ep_and_chunks_follow(job: Job, check: Check) -> None:
    """With another pp the experts' degrees and the chunks change to what fits."""
    text = job(
        'from "mixtral-8x7b" { layers = 36 }',
        '{ nodes = 3, node from "dgx-h100" }',
        "{ tp = 2, pp = 4, ep = 3, schedule = interleaved(chunks = 3), zero = 1 }",
    )
    found = next(each for each in check(text) if each.code == "L216")
    assert found.help and all("ep = 3" not in said for said in found.help)


def test_shards_follow(job: Job, check: Check) -> None:
    text = job(
        'from "llama3-8b" { heads = 36, head_dim = 128, kv_heads = 12 }',
        '{ nodes = 3, node from "dgx-h100" }',
        "{ tp = 8, zero = 3, shard = 3 }",
    )
    found = next(each for each in check(text) if each.code == "L202")
    assert found.fixes


def test_recomputation_before_another_layout(job: Job, check: Check) -> None:
    """Of the sizes that do not fit, the smallest does with recomputation."""
    for micro in (1, 2, 4, 8, 16):
        recipe = train(seq="8Ki", micro=micro, batch=256)
        told = check(job(cluster='{ node from "dgx-h100" }', parallel="{ tp = 4 }", train=recipe))
        helps = [said for each in told if each.code == "M204" for said in each.help]
        if helps:
            assert any(said.startswith("recompute = full fits") for said in helps)
            return
    raise AssertionError("sixteen sequences of 8Ki tokens fit")


def test_the_peak_is_not_priced_of_what_cannot_run(job: Job, check: Check) -> None:
    """A schedule that does not come out even is told, and nothing of its memory."""
    for schedule, batch in (("interleaved(chunks = 2)", 3), ("dualpipe_v", 3), ("dualpipe", 3)):
        parallel = f"{{ tp = 8, pp = 2, schedule = {schedule} }}"
        cluster = '{ nodes = 2, node from "dgx-h100" }'
        told = check(job(cluster=cluster, parallel=parallel, train=train(batch=batch)))
        assert [each.code for each in told] in (["S202"], ["S205"])


def test_a_run_of_very_many_microbatches_is_priced_at_once(job: Job, check: Check) -> None:
    recipe = train(batch=10**15)
    for schedule in ("one_f_one_b", "zero_bubble", "zbv", "dualpipe_v"):
        parallel = f"{{ tp = 8, pp = 2, schedule = {schedule} }}"
        told = check(
            job(cluster='{ nodes = 2, node from "dgx-h100" }', parallel=parallel, train=recipe)
        )
        assert not [each for each in told if each.severity is Severity.ERROR]
