"""The subject of the rules: values by path, what is not known, other layouts of the job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.compiler.checks import (
    Subject,
)
from parlay.compiler.spec.schema import Setting

Job = Callable[..., str]
Read = Callable[[str], Subject]
TRAIN = "{ seq = 4Ki, micro_batch = 2, global_batch = 64 }"


def test_values_by_path(job: Job, subject: Read) -> None:
    one = subject(
        job(parallel="{ tp = 8, pp = 2, schedule = interleaved(chunks = 4) }", train=TRAIN)
    )
    assert one.value("parallel.tp") == 8
    assert one.value("parallel.schedule.chunks") == 4
    assert one.value("model.layers") == 32
    assert one.value("cluster.node.gpus") == 8
    assert one.value("cluster.gpus") == one.world == 64
    assert one.value("model.experts.count") is None
    assert one.value("layout") is one.layout is not None
    assert one.value("whole") is True
    assert one.has(("parallel.tp", "model.layers", "layout", "whole"))
    assert not one.has(("parallel.tp", "model.experts"))
    assert one.has(())


def test_an_unknown_path_is_a_fault(job: Job, subject: Read) -> None:
    with pytest.raises(AssertionError, match=r"^no field parallel\.tq$"):
        subject(job()).value("parallel.tq")
    with pytest.raises(AssertionError, match=r"^no field tq$"):
        subject(job()).with_values({"parallel.tq": 2})


def test_what_is_not_known(job: Job, subject: Read) -> None:
    opened = subject(job(parallel="{ tp = auto }"))
    assert opened.value("parallel.tp") is None
    assert opened.value("whole") is None and not opened.whole
    assert opened.layout is None and opened.microbatches is None
    broken = subject(job('from "llama3-8b" { layers = "x" }'))
    assert broken.value("whole") is None and not broken.whole
    bare = subject("parallel { tp = 2 }")
    assert bare.world is None and bare.value("cluster.gpus") is None
    with pytest.raises(AssertionError):
        _ = bare.model
    with pytest.raises(AssertionError):
        _ = bare.cluster
    with pytest.raises(AssertionError):
        _ = bare.train
    with pytest.raises(AssertionError):
        _ = bare.laid_out


def test_a_world_with_one_factor(subject: Read) -> None:
    assert subject('cluster { nodes = auto, node from "dgx-h100" }').world is None
    assert subject("cluster { nodes = 2, node { gpus = auto } }").world is None


@pytest.mark.parametrize(
    ("micro", "batch", "number"),
    [(1, 64, 8), (2, 64, 4), (2, 16, 1), (2, 8, None), (2, 24, None), (3, 72, 3), (1, 8, 1)],
)
def test_microbatches(micro: int, batch: int, number: int | None, job: Job, subject: Read) -> None:
    train = f"{{ seq = 4Ki, micro_batch = {micro}, global_batch = {batch} }}"
    assert subject(job(train=train)).microbatches == number


def test_origins(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 8 }"))
    assert one.written("parallel.tp") and not one.derived("parallel.tp")
    assert one.derived("parallel.dp") and not one.written("parallel.dp")
    assert not one.written("model.layers") and not one.derived("model.layers")
    assert one.span("parallel.tp").start == one.origins.span("parallel.tp").start
    assert one.label("parallel.tp", "here") == (one.span("parallel.tp"), "here")


@pytest.mark.parametrize(
    ("field", "value", "left"),
    [
        ("auto in [2, 4]", 2, True),
        ("auto in [2, 4]", 3, False),
        ("auto <= 4", 4, True),
        ("auto <= 4", 5, False),
        ("auto <= 4", 3, True),
        ("auto", 64, True),
        ("8", 2, True),
    ],
)
def test_admits(field: str, value: int, left: bool, job: Job, subject: Read) -> None:
    one = subject(job(parallel=f"{{ tp = {field}, pp = auto in [1, 2] }}"))
    assert one.admits({"parallel.tp": value}) is left
    # Another field before it is no reason to stop.
    assert one.admits({"parallel.cp": 2, "model.layers": 3, "parallel.tp": value}) is left
    assert one.admits({"parallel.pp": 2, "parallel.tp": value}) is left
    assert not one.admits({"parallel.pp": 3, "parallel.tp": value})
    assert one.admits({})


def test_other_values(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 8, pp = 2, schedule = interleaved(chunks = 2) }"))
    other = one.with_values({"parallel.pp": 4, "parallel.schedule.chunks": 8, "model.layers": 64})
    assert (one.parallel.pp, one.parallel.dp, one.model.layers) == (2, 4, 32)
    assert (other.parallel.pp, other.parallel.dp, other.model.layers) == (4, 2, 64)
    assert other.parallel.schedule == Setting("interleaved", {"chunks": 8})
    assert other.parallel.shard == 2 and one.parallel.shard == 4
    assert other.searching and not one.searching
    assert other.layout is not None and other.layout.size("pp") == 4
    given = one.with_values({"parallel.pp": 4, "parallel.dp": 7})
    assert given.parallel.dp == 7


def test_a_layout_is_kept_where_no_layout_follows_from_what_is_tried(
    job: Job, subject: Read
) -> None:
    one = subject(job(parallel="{ tp = 8 }", train=TRAIN))
    assert "layout" not in vars(one.with_values({"parallel.zero": 3}))  # nobody has asked for it
    laid_out = one.layout
    assert laid_out is not None and laid_out.size("tp") == 8
    assert vars(one.with_values({"parallel.zero": 3, "train.micro_batch": 4}))["layout"] is laid_out
    other = one.with_values({"parallel.zero": 3, "parallel.tp": 4})
    assert other.laid_out.size("tp") == 4


def test_written_degrees_stay(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 8, dp = 8 }"))
    assert one.with_values({"parallel.tp": 4}).parallel.dp == 8


def test_what_follows_from_nothing_known(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ tp = 8, pp = auto }"))
    assert one.with_values({"parallel.tp": 4}).parallel.dp is None
    known = one.with_values({"parallel.pp": 2})
    assert (known.parallel.dp, dict(known.open)) == (4, {})
    assert list(one.open) == ["parallel.pp"]
