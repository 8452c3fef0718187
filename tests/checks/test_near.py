"""Other layouts and values: what has to follow, what holds, which are offered first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from parlay.compiler.checks import (
    Subject,
    faults,
    follow,
    suggest,
)
from parlay.dsl.diagnostics import Severity

Job = Callable[..., str]
Read = Callable[[str], Subject]
MOE = 'from "mixtral-8x7b"'
TRAIN = "{ seq = 4Ki, micro_batch = 2, global_batch = 64 }"
CHUNKS_8 = "schedule = interleaved(chunks = 8)"
CHUNKS_3 = "schedule = interleaved(chunks = 3)"
PLAIN = "{ nodes = 8, node { gpus = 8, gpu { memory = 80GB } } }"


# ── What follows ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "parallel", "moved", "follows"),
    [
        ("llama3-8b", "tp = 8", (4, 2, 8), {}),
        ("llama3-8b", "tp = 8, shard = 8", (4, 2, 8), {}),
        ("llama3-8b", "tp = 8, shard = 8", (4, 4, 4), {"shard": 4}),
        ("llama3-8b", "tp = 8, shard = 8", (16, 4, 1), {"shard": 1}),
        ("llama3-8b", "tp = 4, cp = 2, shard = 8", (4, 2, 4), {}),
        ("llama3-8b", "tp = 4, cp = 2, shard = 8", (4, 4, 2), {"shard": 4}),
        ("llama3-8b", f"pp = 4, {CHUNKS_8}", (8, 8, 1), {"schedule.chunks": 4}),
        ("llama3-8b", f"pp = 4, {CHUNKS_8}", (8, 2, 4), {}),
        ("llama3-8b", f"pp = 4, {CHUNKS_8}", (1, 32, 2), {}),
        ("llama3-8b", f"pp = 4, {CHUNKS_8}", (1, 64, 1), {}),
        ("llama3-8b", f"pp = 4, {CHUNKS_3}", (8, 4, 2), {"schedule.chunks": 4}),
        ("mixtral-8x7b", "ep = 8", (8, 1, 8), {}),
        ("mixtral-8x7b", "ep = 8", (8, 16, 1), {"ep": 4, "etp": 1}),
        ("mixtral-8x7b", "ep = 3", (8, 1, 8), {"ep": 4, "etp": 1}),
        ("mixtral-8x7b", "etp = 3, ep = 4", (8, 1, 8), {"ep": 4, "etp": 4}),
        ("mixtral-8x7b", "etp = 8, ep = 8", (8, 2, 4), {"ep": 4, "etp": 8}),
        ("mixtral-8x7b", "ep = auto", (8, 16, 1), {}),
        ("mixtral-8x7b", "etp = auto", (8, 16, 1), {}),
    ],
)  # fmt: skip
def test_what_follows(
    model: str,
    parallel: str,
    moved: tuple[int, int, int],
    follows: dict[str, int],
    job: Job,
    subject: Read,
) -> None:
    one = subject(job(f'from "{model}"', parallel=f"{{ {parallel} }}"))
    given = dict(zip(("parallel.tp", "parallel.pp", "parallel.dp"), moved, strict=True))
    wanted = given | {f"parallel.{name}": value for name, value in follows.items()}
    assert follow.degrees(one, given, 64) == wanted


def test_experts_without_a_width_follow_too(job: Job, subject: Read) -> None:
    model = f'{MOE} {{ experts {{ ffn = "x" }} }}'
    one = subject(job(model, parallel="{ etp = 3, ep = 8 }"))
    given = {"parallel.tp": 8, "parallel.pp": 1, "parallel.dp": 8}
    assert follow.degrees(one, given, 64) == given | {"parallel.etp": 4, "parallel.ep": 8}
    narrow = subject(job(f"{MOE} {{ experts {{ ffn = 7 }} }}", parallel="{ etp = 3, ep = 8 }"))
    assert follow.degrees(narrow, given, 64) == given | {"parallel.etp": 1, "parallel.ep": 8}


# ── Suggestions ───────────────────────────────────────────────────────────────


def test_choices(job: Job, subject: Read) -> None:
    one = subject(job(train=TRAIN))

    def choose(values: list[int], wanted: int, most: int = 3) -> suggest.Help:
        return suggest.choices(one, "train.global_batch", values, wanted=wanted, most=most)

    assert choose([48, 80, 64], 64).help == ("global_batch = 48 or 80 fits",)
    assert [each.title for each in choose([80, 48], 64).fixes] == [
        "global_batch = 48",
        "global_batch = 80",
    ]
    assert choose([16, 32, 128, 256], 64).help == ("global_batch = 16, 32 or 128 fits",)
    assert choose([16, 32, 128, 256], 64, 1).help == ("global_batch = 32 fits",)
    # 17 is no multiple of micro_batch · dp = 16.
    assert choose([17, 32], 16, 1).help == ("global_batch = 32 fits",)
    assert choose([17, 64], 64) == suggest.Help()
    assert choose([], 64) == suggest.Help((), ())
    searching = replace(one, searching=True)
    assert suggest.choices(searching, "train.global_batch", [32], wanted=64) == suggest.Help()
    assert choose([16, 32, 48, 128], 64, 3).help == ("global_batch = 32, 48 or 128 fits",)


def test_choices_ask_for_three(job: Job, subject: Read) -> None:
    one = subject(job(train=TRAIN))
    found = suggest.choices(one, "train.global_batch", [16, 32, 48, 80, 96], wanted=64)
    assert found.help == ("global_batch = 48, 80 or 96 fits",)


def test_layouts_of_nothing(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 48 }"))
    assert suggest.layouts(one).help
    assert suggest.layouts(replace(one, searching=True)) == suggest.Help()
    assert suggest.layouts(subject(job(parallel="{ tp = auto }"))) == suggest.Help()
    assert suggest.layouts(subject("parallel { tp = 3 }")) == suggest.Help()
    assert suggest.layouts(subject(job(parallel="{ tp = 16, cp = 3 }"))) == suggest.Help()


def test_layouts_keep_and_allow(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 16, pp = 2 }"))
    kept = suggest.layouts(one, fixed=("pp",))
    assert kept.help and all("pp = 2," in said for said in kept.help)
    allowed = suggest.layouts(one, allowed={"parallel.tp": (2, 4)})
    assert allowed.help and all(said.startswith(("tp = 2,", "tp = 4,")) for said in allowed.help)
    assert suggest.layouts(one, allowed={"parallel.tp": (3,)}) == suggest.Help()
    assert suggest.layouts(one, fixed=("tp", "pp")) == suggest.Help()


def test_nearest_first(job: Job, subject: Read) -> None:
    """One doubling away before two; of equals the one with more tp."""
    one = subject(job("{ params = 7B }", PLAIN, "{ tp = 16, pp = 2 }"))
    near = suggest.near_layouts(one, fixed=(), allowed={})
    assert [each.words.partition(" keeps")[0] for each in near] == [
        "tp = 8, pp = 2, dp = 4",
        "tp = 8, pp = 1, dp = 8",
        "tp = 8, pp = 4, dp = 2",
    ]
    assert near[0].words == (
        "tp = 8, pp = 2, dp = 4 keeps 64 GPUs and fits (weights and states 7.88 GB of 80 GB)"
    )
    assert [edit.text for edit in near[0].fixes[0].edits] == ["8"]
    assert [edit.text for edit in near[2].fixes[0].edits] == ["8", "4"]


def test_dp_is_edited_where_it_is_written(job: Job, subject: Read) -> None:
    one = subject(job("{ params = 7B }", PLAIN, "{ tp = 16, pp = 2, dp = 2 }"))
    near = suggest.near_layouts(one, fixed=("pp",), allowed={})
    assert [edit.text for edit in near[0].fixes[0].edits] == ["8", "4"]
    assert near[0].fixes[0].title == "tp = 8, pp = 2, dp = 4"


def test_holds(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 8, pp = auto in [2, 4] }"))
    assert suggest.holds(one, {"parallel.pp": 2})
    assert not suggest.holds(one, {"parallel.pp": 8})
    assert not suggest.holds(subject(job()), {"parallel.tp": 3})


def test_the_worst_of_other_values(job: Job, subject: Read) -> None:
    one = subject(job(train=TRAIN))
    assert faults.worst(one, {"parallel.tp": 4}) is None
    assert faults.worst(one, {"parallel.tp": 3}) is Severity.ERROR
    assert faults.worst(one, {"train.global_batch": 17}) is Severity.ERROR
    assert faults.worst(one, {"parallel.pp": 8}) is Severity.WARNING
    assert faults.worst(one, {"train.seq": 16384}) is Severity.WARNING
    assert faults.makes_a_grid(one, {"parallel.tp": 8})
    assert not faults.makes_a_grid(one.with_values({"parallel.tp": 3}), {"parallel.tp": 3})
    assert faults.makes_a_grid(one.with_values({"parallel.tp": 3}), {"train.seq": 3})


def test_what_is_told_of_other_values(job: Job, subject: Read) -> None:
    one = subject(job('from "llama3-8b" { heads = 48, head_dim = 128, kv_heads = 6 }'))
    assert [each.code for each in faults.told(one)] == ["L203"]
    assert [each.code for each in faults.told(one, {"train.seq": 1})] == []
    assert [each.code for each in faults.told(one, {"parallel.tp": 8})] == ["L203"]
    assert [each.code for each in faults.told(one, {"parallel.pp": 1})] == ["L203"]
    assert [each.code for each in faults.told(one, {"model.kv_heads": 6})] == ["L203"]
    assert [each.code for each in faults.told(one, {"model.layers": 32})] == []
    wide = job('from "llama2-7b"', parallel="{ tp = 16 }")
    assert [each.code for each in faults.told(subject(wide))] == ["N201"]
    assert [each.code for each in faults.told(subject(wide + 'allow N201 "x"\n'))] == []
    # Notes are no fault: a copied head.
    assert not list(faults.told(subject(job('from "llama3-8b" { kv_heads = 4 }'))))
