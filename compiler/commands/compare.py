"""`parlay compare`: what the ledger predicts beside what a run measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import failed, has_figures, plain, priced, print_json
from parlay.compiler.commands.reading import text_of
from parlay.compiler.ledger.time import TimeLine, priceable, time_of
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics.cells import harmless

if TYPE_CHECKING:
    from rich.console import Console

WARM_UP = 3
"""Steps at the start that are left out where there are more: allocation, compilation, caches."""
LEAST = 0.1
LARGEST = 1 << 30
"""Bytes beyond which a file is no metrics of a run."""
MOST_SECONDS = 1e15
"""What no figure of a step reaches: infinity, and integers past any float, are none."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: predicted, measured in the median step, and the error of the prediction."""

    figure: str
    unit: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """predicted / measured − 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class Beside:
    """One phase beside the lines of one file.

    `tokens` are those of a step, predicted and measured, where the run's tell them.
    """

    phase: str
    metrics: Path
    figures: tuple[Compared, ...]
    steps: int
    lines: int
    tokens: tuple[int, int] | None

    @property
    def of_another(self) -> bool:
        """Whether the run took other steps than the phase has."""
        return self.tokens is not None and self.tokens[0] != self.tokens[1]


def run(file: Path, metrics: Sequence[Path], *, json: bool = False) -> int:
    """Prints every phase's predictions beside the medians of a run.

    `metrics` is one file that stands beside all of them, or one a phase, in their order; 2 for
    any other number, 1 where a step cannot be predicted or a file is no metrics.
    """
    job = priced(file)
    if not has_figures(job):
        return failed(job, json=json)
    if len(metrics) not in (1, len(job.phases)):
        phases = "phase" if len(job.phases) == 1 else "phases"
        words = (
            f"{len(metrics)} files of metrics for {len(job.phases)} {phases}: one is needed, or "
            "one a phase in their order"
        )
        print(f"parlay: {words}", file=sys.stderr)
        return failed(job, words=words, json=json, status=2)
    found: list[Beside] = []
    for number, phase in enumerate(job.phases):
        path = metrics[number if len(metrics) > 1 else 0]
        beside = _beside(job, phase, path)
        if isinstance(beside, str):
            print(f"parlay: {harmless(beside)}", file=sys.stderr)
            return failed(job, words=beside, json=json)
        found.append(beside)
    if json:
        print_json(_document(found))
    else:
        _print(found)
    return 1 if job.errors else 0


def _beside(job: pipeline.Job, phase: Phase, metrics: Path) -> Beside | str:
    """A phase beside a file, or why there is none."""
    layout = pipeline.lay_out(phase)
    train = phase.spec.train
    if layout is None or train is None or not layout.stages:
        return f"{job.path}: a step needs a model with a shape, a cluster, every degree and `train`"
    if not priceable(phase.spec):
        return (
            f"{job.path} states no peak and memory bandwidth of its GPU, so that no step is "
            "predicted; `parlay calibrate -o FILE` measures them"
        )
    lines = read(metrics)
    if isinstance(lines, str):
        return lines
    figures = tuple(compared(time_of(phase.spec, layout), lines))
    taken = tokens_of(lines)
    tokens = None if taken is None else (train.global_batch * train.seq, taken)
    return Beside(phase.name, metrics, figures, len(steady(lines)), len(lines), tokens)


def _document(found: Sequence[Beside]) -> dict[str, Any]:
    """The first phase as ever, and all of them."""
    phases = [
        {
            "name": each.phase,
            "metrics": str(each.metrics),
            "steps": each.steps,
            "tokens_per_step": each.tokens
            and {"predicted": each.tokens[0], "measured": each.tokens[1]},
            "figures": [asdict(one) | {"error": one.error} for one in each.figures],
        }
        for each in found
    ]
    first = phases[0]
    return {"version": 1, "steps": first["steps"], "figures": first["figures"], "phases": phases}


def read(path: Path) -> list[dict[str, Any]] | str:
    """The lines of a `metrics.jsonl`, or what is wrong with it.

    A last line without an end, as a run leaves it that is still writing or was ended, is left out.
    """
    text, why = text_of(path, most=LARGEST)
    if why:
        return why
    whole = text.splitlines()
    found: list[dict[str, Any]] = []
    for number, line in enumerate(whole, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            if found and number == len(whole) and not text.endswith("\n"):
                break
            return f"{path}, line {number} is no JSON"
        if not isinstance(values, dict) or not _positive(values.get("seconds")):
            return f"{path}, line {number} has no `seconds` above 0"
        found.append(values)
    return found or f"{path} has no steps"


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < MOST_SECONDS


def steady(lines: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The lines after the warm-up, or all where there is no more than that."""
    return lines[WARM_UP:] if len(lines) > WARM_UP else lines


def compared(predicted: TimeLine, lines: Sequence[dict[str, Any]]) -> list[Compared]:
    """Step time, tokens a second and MFU, where the run has them."""
    kept = steady(lines)

    def middle(name: str) -> float | None:
        values = [line[name] for line in kept if _positive(line.get(name))]
        return median(values) if values else None

    figures = (
        ("step", "s", predicted.step_seconds, middle("seconds")),
        ("throughput", "tokens/s", predicted.tokens_per_second, middle("tokens_per_second")),
        ("mfu", "share", predicted.mfu, middle("mfu")),
    )
    return [
        Compared(name, unit, ours, theirs)
        for name, unit, ours, theirs in figures
        if ours is not None and theirs is not None
    ]


def tokens_of(lines: Sequence[dict[str, Any]]) -> int | None:
    """Tokens of one step: those so far over the steps so far; None where no line tells both."""
    for line in reversed(lines):
        step, tokens = line.get("step"), line.get("tokens")
        if isinstance(step, int) and isinstance(tokens, int) and step >= 0 and tokens > 0:
            each, rest = divmod(tokens, step + 1)
            return each if rest == 0 else None
    return None


def _print(found: Sequence[Beside]) -> None:

    console = new_console()
    for each in found:
        if len(found) > 1:
            console.print(plain(f'phase "{each.phase}"'), style="bold")
        _print_one(console, each)


def _print_one(console: Console, each: Beside) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for title in ("", "predicted", "measured", "", "error"):
        table.add_column(title, justify="right" if title else "left")
    for one in each.figures:
        table.add_row(
            one.figure, f"{one.predicted:.4g}", f"{one.measured:.4g}", one.unit, f"{one.error:+.1%}"
        )
    console.print(table)
    ratios = [one.predicted / one.measured for one in each.figures if one.measured]
    if each.tokens is not None and each.of_another:
        predicted, measured = each.tokens
        console.print(
            f"a step of the run has {measured:,} tokens, one of this phase {predicted:,}: "
            "metrics of another phase, or of another batch"
        )
    elif any(not LEAST < ratio < 1 / LEAST for ratio in ratios):
        console.print("more than ten times apart: metrics of another run, or another machine")
    console.print(f"median of {each.steps} steps of {each.lines}", style="dim")
