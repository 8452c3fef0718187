"""What was planned: the layout that was chosen, what it is chosen from, and why others lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.checks import rule
from parlay.compiler.report.figure import Figure, Figures
from parlay.compiler.report.numbers import count, data, seconds, share
from parlay.compiler.report.waterfall import NAMES

MOST: Final = 10
"""Layouts of the front that are shown, the first and the last among them."""
PARTS: Final = 3
"""Parts of the step that are named where a layout takes longer."""
FIGURES: Final = frozenset(("step_seconds", "peak_bytes", "mfu", "gpus", "more"))


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One layout; figures are of the document's part at `at`, `more` what takes longer in it."""

    at: str
    chosen: tuple[str, ...]
    step: Figure | None
    peak: Figure | None
    mfu: Figure | None
    gpus: Figure | None
    more: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """The best layout with one value of a field; `refused` are the codes where there is none."""

    at: str
    field: str
    value: str
    step: Figure | None
    peak: Figure | None
    refused: str


@dataclass(frozen=True, slots=True)
class PlanSection:
    """The plan of one phase; `front` is a part of `in_front` layouts."""

    number: int
    name: str
    objective: str
    fields: tuple[str, ...]
    best: PlanRow | None
    others: tuple[PlanRow, ...]
    front: tuple[PlanRow, ...]
    in_front: int
    values: tuple[ValueRow, ...]
    searched: Figure | None
    legal: Figure | None
    outdone: Figure | None
    rejected: tuple[tuple[str, str, Figure | None], ...]
    fewest: Figure | None


def plan_sections(plans: Sequence[Mapping[str, Any]]) -> tuple[PlanSection, ...]:
    """The `phases` of `parlay plan --json`."""
    return tuple(_section(number, Figures(each, "plan")) for number, each in enumerate(plans))


def _section(number: int, figures: Figures) -> PlanSection:
    best, others, front = (figures.at(name) for name in ("best", "runners_up", "pareto"))
    names = tuple(name for name in best or () if name not in FIGURES)
    return PlanSection(
        number,
        figures.at("phase"),
        figures.at("objective").replace("_", " "),
        names,
        _row(figures, "best", names) if best else None,
        tuple(_row(figures, f"runners_up.{place}", names) for place in range(len(others))),
        tuple(_row(figures, f"pareto.{place}", names) for place in _spaced(len(front))),
        len(front),
        tuple(_values(figures)),
        figures.figure("searched", count),
        figures.figure("legal", count),
        figures.figure("outdone", count),
        tuple(
            (code, _title(code), figures.figure(f"rejected.{code}", count))
            for code in figures.at("rejected")
        ),
        figures.figure("fewest_gpus", count),
    )


def _row(figures: Figures, at: str, names: Sequence[str]) -> PlanRow:
    here = figures.below(at)
    more = sorted((here.at("more") or {}).items(), key=lambda item: -item[1])[:PARTS]
    parts = [(NAMES.get(name, name), here.figure(f"more.{name}", seconds)) for name, _ in more]
    return PlanRow(
        at,
        tuple(_spelt(here.at(name)) for name in names),
        here.figure("step_seconds", seconds),
        here.figure("peak_bytes", data),
        here.figure("mfu", share),
        here.figure("gpus", count),
        tuple((words, figure) for words, figure in parts if figure is not None),
    )


def _values(figures: Figures) -> Iterator[ValueRow]:
    for place, each in enumerate(figures.at("by_value")):
        at = f"by_value.{place}"
        here = figures.below(at)
        yield ValueRow(
            at,
            each["field"].rpartition(".")[2],
            each["value"],
            here.figure("step_seconds", seconds),
            here.figure("peak_bytes", data),
            "",
        )
    for place, each in enumerate(figures.at("never")):
        name, codes = each["field"].rpartition(".")[2], ", ".join(list(each["rejected"])[:PARTS])
        yield ValueRow(f"never.{place}", name, each["value"], None, None, codes)


def _spelt(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _title(code: str) -> str:
    found = rule(code)
    if found is not None:
        return found.TITLE
    return "an assert of the file" if code == "assert" else "a target cannot express it"


def _spaced(number: int) -> list[int]:
    if number <= MOST:
        return list(range(number))
    return [round(place * (number - 1) / (MOST - 1)) for place in range(MOST)]
