"""How many microbatches a step has, in words, and batches that have enough of them."""

from __future__ import annotations

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.source import Span

READS = (
    "train.global_batch",
    "train.micro_batch",
    "parallel.dp",
    "parallel.pp",
    "parallel.schedule",
)


def arithmetic(subject: Subject) -> str:
    """`microbatches = 8 / (1 · 2) = 4`."""
    train, dp = subject.train, subject.parallel.dp
    return (
        f"microbatches = global_batch / (micro_batch · dp) = {train.global_batch} / "
        f"({train.micro_batch} · {dp}) = {subject.microbatches}"
    )


def places(subject: Subject) -> list[tuple[Span, str]]:
    """The three fields that make the number."""
    train, dp = subject.train, subject.parallel.dp
    return [
        subject.label("train.global_batch", words.counted(train.global_batch, "sequence")),
        subject.label(
            "train.micro_batch", f"{words.counted(train.micro_batch, 'sequence')} a microbatch"
        ),
        subject.label("parallel.dp", words.counted(dp, "replica")),
    ]


def near(subject: Subject, *, least: int = 1, multiple: int = 1) -> suggest.Help:
    """The nearest global batches with at least `least` microbatches, a multiple of `multiple`."""
    train = subject.train
    once = train.micro_batch * subject.parallel.dp
    floor = -(-least // multiple) * multiple * once
    values = {floor, *words.near(train.global_batch, once * multiple, least=floor)}
    return suggest.choices(subject, "train.global_batch", values, wanted=train.global_batch, most=2)
