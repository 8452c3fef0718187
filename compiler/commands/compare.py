"""`parlay compare`: what the ledger predicts beside what a run measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import broken, print_json, show
from parlay.compiler.ledger.time import TimeLine, priceable, time_of
from parlay.dsl.diagnostics.cells import harmless

WARM_UP = 3
"""Steps at the start that are left out where there are more: allocation, compilation, caches."""
LEAST = 0.1
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


def run(file: Path, metrics: Path, *, json: bool = False) -> int:
    """Prints the first phase's predictions beside the medians of `metrics`."""
    job = pipeline.load(file)
    if broken(job):
        return 1
    phase = job.phases[0]
    layout = pipeline.lay_out(phase)
    if layout is None or phase.spec.train is None or not layout.stages:
        show([pipeline.checked(job)], summary=True, stream=sys.stderr)
        return 1
    if not priceable(phase.spec):
        print(
            f"parlay: {file} states no peak and memory bandwidth of its GPU, so that no step is "
            "predicted; `parlay calibrate -o FILE` measures them",
            file=sys.stderr,
        )
        return 1
    lines = read(metrics)
    if isinstance(lines, str):
        print(f"parlay: {harmless(lines)}", file=sys.stderr)
        return 1
    found = compared(time_of(phase.spec, layout), lines)
    if json:
        figures = [asdict(one) | {"error": one.error} for one in found]
        print_json({"version": 1, "steps": len(steady(lines)), "figures": figures})
        return 0
    _print(found, len(steady(lines)), len(lines))
    return 0


def read(path: Path) -> list[dict[str, Any]] | str:
    """The lines of a `metrics.jsonl`, or what is wrong with it.

    A last line without an end, as a run leaves it that is still writing or was ended, is left out.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as failure:
        return f"{path} cannot be read: {failure.strerror}"
    except UnicodeDecodeError:
        return f"{path} is not UTF-8"
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


def _print(found: Sequence[Compared], kept: int, lines: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, header_style="bold")
    for title in ("", "predicted", "measured", "", "error"):
        table.add_column(title, justify="right" if title else "left")
    for one in found:
        table.add_row(
            one.figure, f"{one.predicted:.4g}", f"{one.measured:.4g}", one.unit, f"{one.error:+.1%}"
        )
    console.print(table)
    if any(one.measured and not LEAST < one.predicted / one.measured < 1 / LEAST for one in found):
        console.print("more than ten times apart: metrics of another run, or another machine")
    console.print(f"median of {kept} steps of {lines}", style="dim")
