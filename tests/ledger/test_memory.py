"""The memory ledger: moments, sharding, schedules, recompute, offload."""

from __future__ import annotations

import itertools

import pytest
from parlay.compiler.ledger.memory import account, memory
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.spec.schema import Setting
from parlay.runtime import timeline, timeline_split

from .jobs import job, small

EXPERTS = "experts { count = 8  top_k = 2  ffn = 64 }"


def category(text: str, name: str, stage: int = 0) -> int:
    """Bytes of a category at the peak of a stage."""
    return memory(*job(text))[stage].peak.categories[name]


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 3, 8, 32])
def test_in_flight_is_that_of_the_action_lists(pp: int, microbatches: int) -> None:
    cases = [
        (Setting("gpipe"), timeline.gpipe(pp, microbatches)),
        (Setting("one_f_one_b"), timeline.one_f_one_b(pp, microbatches)),
        (Setting("zero_bubble"), timeline_split.zero_bubble(pp, microbatches)),
        (Setting("zbv"), timeline_split.zbv(pp, microbatches)),
    ]
    for chunks in (2, 3):
        if microbatches % pp == 0:
            setting = Setting("interleaved", {"chunks": chunks})
            cases.append((setting, timeline.interleaved(pp, chunks, microbatches)))
    if microbatches >= 2 * pp:
        cases.append((Setting("dualpipe_v"), timeline_split.dualpipe_v(pp, microbatches)))
        if pp % 2 == 0 and microbatches % 2 == 0:
            cases.append((Setting("dualpipe"), timeline_split.dualpipe(pp, microbatches)))
    for (setting, played), rank in itertools.product(cases, range(pp)):
        held = in_flight(
            setting,
            pp=pp,
            microbatches=microbatches,
            stage=rank,
            weights=(1.0,) * played.chunks,
        )
        assert sum(held) == played.in_flight(rank), (setting, rank)


def test_uneven_chunks_are_weighed() -> None:
    weights = (1.0, 5.0)
    held = in_flight(
        Setting("interleaved", {"chunks": 2}), pp=2, microbatches=8, stage=0, weights=weights
    )
    played = timeline.interleaved(2, 2, 8).actions[0]
    now, most = [0, 0], 0.0
    for action in played:
        now[action.stage // 2] += 1 if action.kind == "F" else -1
        most = max(most, sum(a * b for a, b in zip(now, weights, strict=True)))
    assert sum(a * b for a, b in zip(held, weights, strict=True)) == most


def test_peak_is_a_moment_and_not_a_sum_of_maxima() -> None:
    [first, last] = memory(*job(small("pp = 2", gpus=2)))
    for each in (first, last):
        assert each.peak_bytes == max(moment.value_bytes for moment in each.moments)
        assert each.peak_bytes == sum(each.peak.categories.values())
    assert "loss" not in {moment.name for moment in first.moments}
    assert "loss" in {moment.name for moment in last.moments}


def test_zero_shards_by_stage() -> None:
    plain = {n: category(small(f"zero = {n}"), "optimizer") for n in range(4)}
    assert plain[1] == plain[2] == plain[3] == plain[0] / 8
    gradients = [category(small(f"zero = {n}"), "gradients") for n in range(4)]
    assert gradients[0] == gradients[1] == 8 * gradients[2] == 8 * gradients[3]
    weights = [category(small(f"zero = {n}"), "weights") for n in range(4)]
    assert weights[0] == weights[1] == weights[2] == 8 * weights[3]
    assert category(small("zero = 3"), "gathered") > 0 == category(small("zero = 2"), "gathered")
    hsdp = small("zero = 3  shard = 2")
    assert category(hsdp, "weights") == weights[0] / 2


def test_experts_shard_over_their_own_group() -> None:
    text = small("ep = 4  zero = 1", model=EXPERTS)
    lines = {line.name: line for line in memory(*job(text))[0].peak.lines}
    # Two of eight experts on a rank, shared by edp = 2 ranks; 3 matrices of 64 x 64.
    experts = 8 * 2 * 3 * 64 * 64
    assert lines["weights of experts"].value_bytes == 2 * experts
    assert lines["optimizer moments of experts"].value_bytes == 8 * experts / 2
    assert lines["optimizer moments"].formula.endswith(" / 8")


def test_imbalance_and_capacity() -> None:
    even = category(small("ep = 4", model=EXPERTS), "activations")
    uneven = category(small("ep = 4", model=EXPERTS[:-1] + "imbalance = 1.5 }"), "activations")
    capped = category(small("ep = 4", model=EXPERTS[:-1] + "capacity = 1.5 }"), "activations")
    assert even < uneven == capped


def test_recompute_forms() -> None:
    def kept(form: str, stack: str = "") -> int:
        return category(small("dp = 8", f"recompute = {form}  {stack}"), "activations")

    none, full = kept("none"), kept("full")
    assert full < kept("full(first = 2)") < none
    assert full < kept("full(every = 2)") < none
    assert kept("full(every = 2)") == kept("full(first = 4)")
    assert full < kept("selective(mlp, norm)") < kept("selective(mlp)") < none
    assert kept("selective(activation)") > kept("selective(mlp)")
    math = "attention = math"
    assert kept("selective", math) < kept("none", math)


def test_sequence_and_context_parallelism_cut_activations() -> None:
    whole = category(small("tp = 4  sequence_parallel = off"), "activations")
    assert category(small("tp = 4"), "activations") < whole
    other = 'stack = "deepspeed"'
    one, two = (account(*job(small(f"cp = {n}", other))).layers[0].kept_bytes for n in (1, 2))
    assert two == one / 2
    buffers = {}
    for method in ("ring", "allgather", "ulysses"):
        [each] = memory(*job(small(f"cp = 4  cp_method = {method}", other)))
        backward = next(moment for moment in each.moments if moment.name == "backward")
        buffers[method] = backward.categories["buffers"]
    pair = 2 * (128 // 4) * 2 * 64  # bf16, tokens of a rank, keys and values
    assert buffers == {"ring": 2 * pair, "allgather": 4 * pair, "ulysses": 1.5 * pair}


def test_offload_goes_to_host_or_disk() -> None:
    kept = account(*job(small("offload = cpu(optimizer)")))
    assert kept.worst.peak.categories["optimizer"] == 0
    plain = category(small(), "optimizer")
    assert kept.host_bytes_per_node == 8 * plain
    # What a rank keeps of the gradients from stage 2 on is where its optimizer is.
    for stage, there in ((1, False), (2, True), (3, True)):
        away = account(*job(small(f"zero = {stage}  offload = cpu(optimizer)")))
        assert (away.worst.peak.categories["gradients"] == 0) == there
        whole = category(small(f"zero = {stage}"), "optimizer")
        gone = whole + (category(small(f"zero = {stage}"), "gradients") if there else 0)
        assert away.host_bytes_per_node == 8 * gone
    disk = account(*job(small("offload = nvme(optimizer, params)")))
    assert disk.host_bytes_per_node == 0 < disk.disk_bytes_per_node
    assert disk.worst.peak.categories["weights"] == 0


def test_tied_head_copies_the_embedding_to_the_last_stage() -> None:
    untied, tied = (
        memory(*job(small("pp = 2", model=f"tied_embeddings = {word}", gpus=2)))
        for word in ("off", "on")
    )
    assert tied[1].peak.categories["weights"] == untied[1].peak.categories["weights"]


def test_dualpipe_holds_two_copies() -> None:
    one = small("pp = 2", gpus=2)
    two = small("pp = 2  schedule = dualpipe", gpus=2)
    weights = [sum(c.peak.categories["weights"] for c in memory(*job(t))) for t in (one, two)]
    assert weights[1] == 2 * weights[0]


def test_reserve_and_budget() -> None:
    text = small() + "budget { memory = 90%  reserve = 2GiB }"
    found = account(*job(text))
    assert found.budget_bytes == 72 * 10**9
    assert found.worst.peak.categories["reserve"] == 2 * 2**30


def test_gradients_in_16_bits_are_cast_for_the_update() -> None:
    [each] = memory(*job(small(train="gradients = bf16", gpus=1)))
    moments = {moment.name: moment for moment in each.moments}
    held = each.peak.categories["weights"] // 2
    assert moments["optimizer step"].categories["temporaries"] == 4 * held
