"""The figures that a layout is judged by, each with its arithmetic at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from parlay.compiler.ledger.time.efficiency import kind_of
from parlay.compiler.ledger.values import values
from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import (
    count,
    data,
    digits,
    money,
    seconds,
    share,
    short,
)
from parlay.compiler.report.part import Part

CLASSES: Final = {
    "dense_bf16": "dense models, 16 bits",
    "dense_fp8": "dense models, fp8",
    "dense_fp4": "dense models, fp4",
    "finetune": "fine-tuning",
    "moe": "mixtures of experts",
}


@dataclass(frozen=True, slots=True)
class Card:
    """One figure. `why` says why there is none; `beside` are further ones, each behind its words.

    `formula` is the arithmetic, `remarks` what has to be known to read it.
    """

    title: str
    figure: Figure | None
    why: str
    beside: tuple[tuple[str, Figure], ...]
    formula: str
    remarks: tuple[str, ...]


def cards(part: Part) -> tuple[Card, ...]:
    """Step time, throughput, MFU, memory, days, cost, bubble and useful share."""
    return tuple(_cards(part))


def _cards(part: Part) -> Iterator[Card]:
    figures, book = part.ledger, part.book
    known = values(book)

    def card(
        title: str,
        name: str,
        figure: Figure | None,
        *beside: tuple[str, Figure | None],
        remarks: tuple[str, ...] = (),
    ) -> Card:
        formula = known[name].formula
        found = tuple((words, each) for words, each in beside if each is not None)
        if figure is None:
            return Card(title, None, formula, found, "", remarks)
        return Card(title, figure, "", found, formula, remarks)

    yield card(
        "Step",
        "time.step",
        figures.figure("time.step_seconds", seconds),
        ("±", figures.figure("time.band", share)),
        ("computing", figures.figure("time.compute_seconds", seconds)),
        ("waiting for messages", figures.figure("time.exposed_communication_seconds", seconds)),
        remarks=_band(part),
    )
    yield card(
        "Tokens/s/GPU",
        "throughput.tokens_per_gpu",
        figures.figure("time.tokens_per_second_per_gpu", digits),
        ("tokens/s in all", figures.figure("time.tokens_per_second", short)),
        ("tokens a step", figures.figure("batch.tokens_per_step", count)),
    )
    yield card(
        "MFU",
        "throughput.mfu",
        figures.figure("time.mfu", share),
        ("HFU", figures.figure("time.hfu", share)),
        ("half of attention's square counted", figures.figure("time.mfu_causal", share)),
        remarks=_convention(part),
    )
    worst = book.memory.worst
    yield card(
        "Peak memory",
        "memory.peak",
        figures.figure("memory.peak_bytes", data),
        ("budget", figures.figure("memory.budget_bytes", data)),
        (
            "of it",
            figures.combined("share", "memory.peak_bytes", "memory.budget_bytes", share),
        ),
        remarks=(f"The fullest rank: stage {worst.stage}, at {worst.peak.name}.",),
    )
    yield card(
        "Days",
        "run.days",
        figures.figure("run.days", digits),
        ("steps", figures.figure("run.steps", count)),
        ("tokens", figures.figure("run.tokens", short)),
        ("GPU-hours", figures.figure("run.gpu_hours", count)),
    )
    yield card("Cost", "run.cost", figures.figure("run.cost", money))
    timed = "time.bubble" if book.time is not None else "pipeline.bubble"
    yield card(
        "Bubble",
        "pipeline.bubble",
        figures.figure(timed, share),
        ("microbatches", figures.figure("pipeline.microbatches", count)),
        ("with even stages", figures.figure("pipeline.bubble", share)),
    )
    yield card(
        "Goodput",
        "goodput",
        figures.figure("goodput.useful_share", share),
        ("MFU after it", figures.figure("goodput.useful_mfu", share)),
        ("interruptions a day", figures.figure("goodput.failures_per_day", digits)),
    )


def _band(part: Part) -> tuple[str, ...]:
    if part.book.time is None:
        return ()
    if not part.book.time.band:
        return ("The speed is as stated.",)
    name = CLASSES.get(kind_of(part.phase.spec), "its class")
    return (
        f"The band: of published runs of its class ({name}) that no fit had seen, half lay within "
        "it, half outside (docs/accuracy.md).",
    )


def _convention(part: Part) -> tuple[str, ...]:
    if part.book.time is None or part.book.time.mfu is None:
        return ()
    return (f"FLOPs a token: {part.book.time.flops_convention}.",)
