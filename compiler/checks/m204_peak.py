"""The peak of a step does not fit the GPU.

What
    The highest of the moments of a step (loss, backward, optimizer step) on the fullest rank is at
    most budget.memory · gpu.memory; an error from a tenth above it, a warning below that.
Why
    The state may fit and the activations not: they grow with the micro-batch, the sequence and the
    number of microbatches in flight. The estimate counts every saved tensor; kernels and allocators
    differ by some percent, so what is close to the budget is a warning.
Example
    model from "llama3-70b"
    cluster { nodes = 4, node from "dgx-h100" }
     parallel {
    #^^^^^^^^ M204
      tp = 2
      pp = 8
      zero = 1
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
    }
Instead
    model from "llama3-70b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 8
      zero = 1
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
Source
    arXiv:2205.05198, section 4; the memory ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import budget, fix, suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.schema import Setting
from parlay.dsl.diagnostics import Diagnostic, Fix, error, warning
from parlay.dsl.source import Span

CODE = "M204"
TITLE = "the peak of a step does not fit the GPU"
READS = (
    *budget.READS,
    "parallel.tp",
    "parallel.pp",
    "parallel.cp",
    "parallel.schedule",
    "train.seq",
    "train.micro_batch",
    "train.global_batch",
    "train.recompute",
    "train.attention",
)
ALLOWED = True

SURE: Final = 1.1
"""From this share of the budget on it is an error."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    state, peak = budget.fullest(subject), budget.peak(subject)
    # A state that does not fit is told by itself.
    if peak is None or state is None or not state.fits or peak.fits:
        return
    needed, there = words.memories(peak.bytes, peak.budget)
    where = f" on stage {peak.stage}" if subject.parallel.pp > 1 else ""
    help, fixes = _help(subject)
    yield (error if peak.bytes > SURE * peak.budget else warning)(
        CODE,
        f"the {peak.moment} needs {needed} a GPU{where}, the budget is {there}",
        subject.origins.block("parallel"),
        f"{needed} a GPU",
        also=_feeding(subject, peak.largest),
        notes=[
            f"{name + ':':<13}{words.memory(size):>9}" for name, size in peak.categories.items()
        ],
        help=help,
        fixes=fixes,
    )


def _feeding(subject: Subject, largest: str) -> list[tuple[Span, str]]:
    """The fields that the largest category follows from."""
    train = subject.train
    if largest in ("activations", "logits", "temporaries"):
        return [
            subject.label("train.seq", f"{words.counted(train.seq, 'token')} a sequence"),
            subject.label(
                "train.micro_batch", f"{words.counted(train.micro_batch, 'sequence')} a microbatch"
            ),
            subject.label("train.recompute", "what the backward computes again"),
        ]
    return [subject.label("parallel.zero", f"the largest part: {largest}")]


def _help(subject: Subject) -> tuple[list[str], list[Fix]]:
    """Smaller microbatches, recomputation of as few layers as do and of all, then the nearest
    layouts."""
    if subject.searching:
        return [], []
    help: list[str] = []
    fixes: list[Fix] = []
    smaller = [size for size in (8, 4, 2, 1) if size < subject.train.micro_batch]
    few = _few(subject)
    for path, values in (
        ("train.micro_batch", {str(size): size for size in smaller}),
        ("train.recompute", {} if few is None else {f"full(first = {few})": _full(few)}),
        ("train.recompute", {"full": _full(None)}),
    ):
        for text, value in values.items():
            other = subject.with_values({path: value})
            if budget.fits(other) and suggest.holds(subject, {path: value}):
                help.append(f"{path.rpartition('.')[2]} = {text} fits{budget.figures(other)}")
                fixes += fix.set_fields(subject, {path: text})
                break
    near = suggest.layouts(subject)
    return [*help, *near.help][: suggest.MOST], [*fixes, *near.fixes][: suggest.MOST]


def _full(first: int | None) -> Setting:
    return Setting("full", {"first": first, "every": None})


def _few(subject: Subject) -> int | None:
    """The fewest layers of every stage to compute again; None where that takes all, or no number
    of them does."""
    most = max(each.layers for each in subject.laid_out.stages)
    enough = bisect_left(
        range(1, most),
        True,
        key=lambda first: budget.fits(subject.with_values({"train.recompute": _full(first)})),
    )
    return enough + 1 if enough < most - 1 else None
