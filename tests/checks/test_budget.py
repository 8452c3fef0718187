"""State and peak against the memory, counted by hand.

Mixed-precision Adam takes 18 bytes a parameter: 2 weight, 4 gradient, 4 master, 8 moments.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.compiler.checks import (
    Subject,
    budget,
)

Job = Callable[..., str]
Read = Callable[[str], Subject]
TRAIN = "{ seq = 4Ki, micro_batch = 2, global_batch = 64 }"
PLAIN = "{ nodes = 8, node { gpus = 8, gpu { memory = 80GB } } }"


def test_the_budget(job: Job, subject: Read) -> None:
    text = job("{ params = 7B }", PLAIN, "{ tp = 8 }")
    assert budget.budget(subject(text)) == 80e9
    assert budget.budget(subject(text + "budget { memory = 90%, reserve = 2GB }\n")) == 70e9


def test_half_a_shape_has_no_rank(job: Job, subject: Read) -> None:
    """Whether or not a number of parameters stands beside it, which T206 tells."""
    shape = "layers = 8, hidden = 64, heads = 4, ffn = 128"
    for model in (f"{{ {shape} }}", f"{{ {shape}, params = 7B }}"):
        assert budget.fullest(subject(job(model, PLAIN, "{ pp = 8 }"))) is None


def test_the_fullest_rank(job: Job, subject: Read) -> None:
    one = budget.fullest(subject(job("{ params = 7B }", PLAIN, "{ tp = 8 }")))
    assert one is not None and one.fits
    assert (one.stage, one.total, one.budget) == (0, 18 * 7e9 / 8, 80e9)
    ends = budget.fullest(subject(job(parallel="{ pp = 4 }")))
    assert ends is not None and ends.stage == 3
    first = budget.fullest(subject(job(parallel="{ pp = 4, stages = [14, 6, 6, 6] }")))
    assert first is not None and first.stage == 0


@pytest.mark.parametrize(("memory", "fits"), [("17.9GB", False), ("18GB", True), ("18.1GB", True)])
def test_at_the_edge_of_the_memory(memory: str, fits: bool, job: Job, subject: Read) -> None:
    """A billion parameters are 18 GB: what fills the memory fits."""
    cluster = f"{{ node {{ gpus = 8, gpu {{ memory = {memory} }} }} }}"
    one = subject(job("{ params = 1B }", cluster, "{ }"))
    state = budget.fullest(one)
    assert state is not None and state.fits is fits
    assert budget.fits(one) is fits


@pytest.mark.parametrize(
    "text",
    [
        'model from "llama3-8b"\nparallel { tp = 2 }',
        'cluster { node from "dgx-h100" }',
        'model from "llama3-8b"\ncluster { node from "dgx-h100" }\nparallel { tp = auto }',
        'model from "llama3-8b" { ffn = "x" }\ncluster { node from "dgx-h100" }',
        'model from "llama3-8b"\ncluster { node { gpus = 8 } }',
    ],
)
def test_no_state_without_sizes(text: str, subject: Read) -> None:
    one = subject(text)
    assert budget.fullest(one) is None and budget.peak(one) is None
    assert budget.fits(one) and budget.figures(one) == ""
    assert budget.host_bytes(one) is None


def test_figures(job: Job, subject: Read) -> None:
    state = subject(job("{ params = 7B }", PLAIN, "{ tp = 8 }"))
    assert budget.figures(state) == " (weights and states 15.8 GB of 80 GB)"
    peak = subject(job(train=TRAIN))
    highest = budget.peak(peak)
    assert highest is not None and highest.fits
    # One stage has all logits; of several the first one holds the most microbatches.
    assert (highest.stage, highest.moment) == (0, "loss")
    cut = budget.peak(subject(job(parallel="{ tp = 2, pp = 4, dp = 8 }", train=TRAIN)))
    assert cut is not None and (cut.stage, cut.moment) == (0, "backward")
    assert budget.figures(peak) == f" ({highest.bytes / 1e9:.1f} GB of 85.5 GB)"
    assert list(highest.categories.values()) == sorted(highest.categories.values(), reverse=True)
    assert highest.largest == next(iter(highest.categories))
    assert all(highest.categories.values())
    assert sum(highest.categories.values()) == pytest.approx(highest.bytes)


@pytest.mark.parametrize(("batch", "walked"), [(128, 128), (512, 512), (528, 512), (4096, 512)])
def test_a_step_is_walked_until_the_pipeline_is_full(
    batch: int, walked: int, job: Job, subject: Read
) -> None:
    """Eight times as many microbatches as stages: 8 · pp 4 · micro_batch 2 · dp 8."""
    train = f"{{ seq = 4Ki, micro_batch = 2, global_batch = {batch} }}"
    one = subject(job(parallel="{ tp = 2, pp = 4, dp = 8 }", train=train))
    assert budget._short(one).train.global_batch == walked


@pytest.mark.parametrize(
    ("schedule", "pp", "batch", "priced"),
    [
        ("one_f_one_b", 2, 1, True),
        ("interleaved(chunks = 2)", 2, 3, False),
        ("interleaved(chunks = 2)", 2, 4, True),
        ("dualpipe", 2, 3, False),
        ("dualpipe", 2, 4, True),
        ("dualpipe", 2, 5, False),
        ("dualpipe", 2, 2, False),
        ("dualpipe_v", 2, 3, False),
        ("dualpipe_v", 2, 4, True),
        ("dualpipe_v", 2, 5, True),
    ],
)
def test_what_runs_is_priced(
    schedule: str, pp: int, batch: int, priced: bool, job: Job, subject: Read
) -> None:
    one = subject(
        job(
            cluster='{ nodes = 2, node from "dgx-h100" }',
            parallel=f"{{ tp = 8, pp = {pp}, schedule = {schedule} }}",
            train=f"{{ seq = 4Ki, micro_batch = 1, global_batch = {batch} }}",
        )
    )
    assert (budget.peak(one) is not None) is priced


def test_dualpipe_with_an_odd_pipeline_is_not_priced(job: Job, subject: Read) -> None:
    one = subject(
        job(
            'from "llama3-8b" { layers = 36 }',
            '{ nodes = 3, node from "dgx-h100" }',
            "{ tp = 8, pp = 3, schedule = dualpipe }",
            "{ seq = 4Ki, micro_batch = 1, global_batch = 12 }",
        )
    )
    assert budget.fullest(one) is not None and budget.peak(one) is None


def test_more_microbatches_than_fill_the_pipeline_cost_no_more(job: Job, subject: Read) -> None:
    peaks = []
    for batch in (16, 17, 1000, 10**12):
        train = f"{{ seq = 4Ki, micro_batch = 1, global_batch = {batch} }}"
        cluster = '{ nodes = 2, node from "dgx-h100" }'
        one = budget.peak(subject(job(cluster=cluster, parallel="{ tp = 8, pp = 2 }", train=train)))
        assert one is not None
        peaks.append(one.bytes)
    assert len(set(peaks)) == 1


def test_a_long_pipeline_is_not_priced(job: Job, subject: Read) -> None:
    for chunks, priced in ((64, True), (65, False)):
        one = subject(
            job(
                f'from "llama3-8b" {{ layers = {8 * chunks} }}',
                parallel=f"{{ tp = 8, pp = 8, schedule = interleaved(chunks = {chunks}) }}",
                train="{ seq = 512, micro_batch = 1, global_batch = 8 }",
            )
        )
        assert (budget.peak(one) is not None) is priced, chunks


def test_host_memory(job: Job, subject: Read) -> None:
    """Adam's moments and the master copy, 12 bytes a parameter, of eight GPUs."""
    one = subject(job("{ params = 1B }", PLAIN, "{ offload = cpu(optimizer) }"))
    assert budget.host_bytes(one) == 12e9 * 8
    assert budget.weights_held(one) == 1e9
    assert budget.weights_held(subject(job("{ params = 1B }", PLAIN, "{ zero = 3 }"))) == 1e9
    assert budget.weights_held(subject(job("{ params = 1B }", PLAIN, "{ tp = 4 }"))) == 0.25e9
    assert budget.host_bytes(subject(job("{ params = 1B }", PLAIN, "{ }"))) == 0
