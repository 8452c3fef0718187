"""What several rules share: units of the sequence, microbatches, division, literals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from parlay.compiler.checks import (
    Subject,
    divide,
    literals,
    microbatches,
    sequence,
)
from parlay.dsl.diagnostics import Severity

Job = Callable[..., str]
Read = Callable[[str], Subject]
MOE = 'from "mixtral-8x7b"'
TRAIN = "{ seq = 4Ki, micro_batch = 2, global_batch = 64 }"


# ── Small parts ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parallel", "context", "tensor", "whole"),
    [
        ("tp = 8", 1, 8, 8),
        ("tp = 8, sequence_parallel = off", 1, 1, 1),
        ("tp = 8, cp = 2", 4, 8, 16),
        ("tp = 1, cp = 4", 8, 1, 8),
        ("tp = 3, cp = 4", 8, 3, 24),
        ("tp = 2, cp = 4", 8, 2, 8),
        ("tp = 8, cp = 4, cp_method = ulysses", 4, 8, 32),
        ("tp = 8, cp = 4, cp_method = allgather", 8, 8, 32),
        ("tp = 1, cp = 4, cp_method = ulysses_ring(inner = 2, outer = 2)", 8, 1, 8),
    ],
)
def test_units_of_the_sequence(
    parallel: str, context: int, tensor: int, whole: int, job: Job, subject: Read
) -> None:
    one = subject(job(parallel=f"{{ {parallel} }}")).parallel
    assert sequence.context_unit(one) == context
    assert sequence.tensor_unit(one) == tensor
    assert sequence.whole_unit(one) == whole


def test_near_lengths(job: Job, subject: Read) -> None:
    one = subject(job(train="{ seq = 4100, micro_batch = 1, global_batch = 64 }"))
    assert sequence.near(one).help == ("seq = 4096 or 4104 fits",)
    short = subject(job(train="{ seq = 3, micro_batch = 1, global_batch = 64 }"))
    assert sequence.near(short).help == ("seq = 8 fits",)


def test_microbatches_in_words(job: Job, subject: Read) -> None:
    one = subject(job(train=TRAIN))
    assert microbatches.arithmetic(one) == (
        "microbatches = global_batch / (micro_batch · dp) = 64 / (2 · 8) = 4"
    )
    assert [words for _, words in microbatches.places(one)] == [
        "64 sequences",
        "2 sequences a microbatch",
        "8 replicas (dp = cluster.gpus / (tp · cp · pp) = 8)",
    ]
    assert [span for span, _ in microbatches.places(one)] == [
        one.span("train.global_batch"),
        one.span("train.micro_batch"),
        one.span("parallel.dp"),
    ]


@pytest.mark.parametrize(
    ("least", "multiple", "said"),
    [
        (1, 1, "16"),
        (8, 1, "128"),
        (5, 4, "128"),
        (3, 3, "48 or 96"),
        (1, 3, "48 or 96"),
        (9, 8, "256"),
    ],
)
def test_near_batches(least: int, multiple: int, said: str, job: Job, subject: Read) -> None:
    found = microbatches.near(subject(job(train=TRAIN)), least=least, multiple=multiple)
    assert found.help == (f"global_batch = {said} fits",)


def test_indivisible(job: Job, subject: Read) -> None:
    one = subject(job(f"{MOE} {{ experts {{ ffn = 7 }} }}", parallel="{ etp = 2, zero = 1 }"))
    found = divide.indivisible(
        one,
        "L218",
        size="model.experts.ffn",
        degree="parallel.etp",
        needs="whole columns",
        one="column",
        many="many columns",
    )
    assert found.message == "etp = 2 does not divide experts.ffn = 7"
    assert [label.text for label in found.labels] == ["whole columns", "7 many columns"]
    assert found.notes == ("7 / 2 leaves 1",)
    assert (found.code, found.severity) == ("L218", Severity.ERROR)
    plain = divide.indivisible(
        one, "L218", size="model.heads", degree="parallel.etp", needs="", one="head"
    )
    assert plain.message == "etp = 2 does not divide heads = 32"
    assert plain.labels[1].text.startswith("32 heads")


# ── Numbers as they are written ───────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "digits", "unit"),
    [("8k", 8, "k"), ("8_192", 8192, ""), ("8Ki", 8, "Ki"), ("1e3", 1000, ""), ("4.5k", 4.5, "k")],
)
def test_literals(given: str, digits: float, unit: str, job: Job, subject: Read) -> None:
    one = subject(job(train=f"{{ seq = {given}, micro_batch = 1, global_batch = 8 }}"))
    found = literals.written(one, "train.seq")
    assert found is not None
    assert (found.text, float(found.number), found.unit) == (given, digits, unit)
    assert found.with_unit("Mi") == given.removesuffix(unit) + "Mi"
    [change] = literals.replaced(one, found, ["9"])
    assert change.title == "write `9`"
    assert [(edit.span, edit.text) for edit in change.edits] == [(found.span, "9")]
    assert literals.replaced(replace(one, editable=False), found, ["9"]) == ()
    assert literals.written(replace(one, searching=True), "train.seq") is None


def test_no_literals(job: Job, subject: Read) -> None:
    one = subject(job(train="{ seq = 2 * 4Ki, micro_batch = 1, global_batch = 8 }"))
    assert literals.written(one, "train.seq") is None
    assert literals.written(one, "model.layers") is None
    assert literals.written(one, "parallel.dp") is None
    assert literals.written(one, "model.experts.ffn") is None
