"""How well the ledger prices published runs: a file of them in, figures out.

    python bench/accuracy.py runs.csv [--json] [--write-docs]

Every row becomes a spec (`rows.py`); what cannot is skipped and counted. A row is priced by the
table of its fold, fitted without any row of its group (`split.py`; the tables stand in `folds/`,
written by `fit.py --folds`), a row of a group that no fit has seen (`folds/groups.txt`) by the
package's own table. So the figures are cross-validated whatever file is given.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from parlay.compiler.ledger.time import time_of
from rows import Case, case_of, read
from scoring import KINDS, Scored, flat, report, summary
from split import fold_of

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs/accuracy.md"


@cache
def table(fold: int) -> dict[str, Any]:
    """The table whose fit saw no group of `fold`."""
    return tomllib.loads((HERE / "folds" / f"{fold}.toml").read_text("utf-8"))


@cache
def fitted() -> frozenset[str]:
    """The groups that the package's own table was fitted on."""
    return frozenset((HERE / "folds/groups.txt").read_text("utf-8").splitlines())


def predict(case: Case) -> Scored:
    """A case with its cross-validated prediction."""
    held = table(fold_of(case.group)) if case.group in fitted() else None
    line = time_of(case.spec, case.layout, held)
    return Scored(case, line.tokens_per_second_per_gpu)


def cases_of(path: Path) -> tuple[list[Case], dict[str, int]]:
    """The cases of a file, and how many rows were left out for which reason."""
    found: list[Case] = []
    skipped: Counter[str] = Counter()
    for row in read(path):
        case = case_of(row)
        if isinstance(case, str):
            skipped[case] += 1
        else:
            found.append(case)
    return found, dict(skipped.most_common())


def document(path: Path) -> tuple[dict[str, Any], list[Scored]]:
    """Every figure of a file, and the scored rows behind them."""
    from memory_rows import memory_report

    cases, skipped = cases_of(path)
    scored = [predict(case) for case in cases]
    figures = report(scored)
    memory = memory_report(path, cases)
    # Of memory the flat guess says nothing.
    none = {"memory": summary(()), "out_of_memory": {"stated": 0, "told_right": 0}}
    flats = report([Scored(case, flat(case)) for case in cases])
    baseline = {**flats, **none, "skipped": skipped}
    ordered = {
        "version": 1,
        "step_time": figures.pop("step_time"),
        "memory": memory.pop("memory"),
        "ranking": figures.pop("ranking"),
        "out_of_memory": memory.pop("out_of_memory"),
        "unstated": figures.pop("unstated"),
        "skipped": skipped,
        **figures,
        **memory,
        "baseline": baseline,
    }
    return ordered, scored


def show(figures: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [_line("stated rows", figures["step_time"]), _line("unstated", figures["unstated"])]
    for title in KINDS:
        lines += ["", title.replace("_", " ")]
        flat_guess, signed = figures["baseline"][title], figures["bias"][title]
        for name, row in figures[title].items():
            beside = flat_guess[name]
            if row["count"]:
                guess = f"   flat: {beside['median']:6.1%} {beside['p90']:6.1%}"
                lines.append(f"{_line(name, row)}   bias {signed[name]:+6.1%}{guess}")
    rank, guess = figures["ranking"], figures["baseline"]["ranking"]
    lines += ["", "ranking: " + _ranking(rank), "   flat: " + _ranking(guess)]
    lines += ["", _line("memory", figures["memory"])]
    for title in ("memory_by_class", "memory_by_source"):
        lines += [_line(f"  {name}", row) for name, row in figures[title].items()]
    lines += [f"  {n} left out: {why}" for why, n in figures["memory_skipped"].items()]
    lines += [_fitted(figures["out_of_memory"])]
    lines += ["", "skipped", *(f"  {n:5d}  {why}" for why, n in figures["skipped"].items())]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any]) -> str:
    if not row["count"]:
        return f"{name:28s}    0"
    worst = f" {row['worst']:6.1%}" if "worst" in row else ""
    return f"{name:28s} {row['count']:4d}  {row['median']:6.1%} {row['p90']:6.1%}{worst}"


def _fitted(row: dict[str, int]) -> str:
    return (
        f"out of memory: {row['told_right']} of {row['stated']} told right; "
        f"ran: {row['ran_told_right']} of {row['ran']}"
    )


def _ranking(row: dict[str, Any]) -> str:
    if not row["groups"]:
        return "no groups"
    pairs = "no pair apart" if row["pairs_right"] is None else f"{row['pairs_right']:.1%}"
    return (
        f"{row['groups']} groups, regret {row['median_regret']:.1%} median "
        f"{row['mean_regret']:.1%} mean, pairs right {pairs}, tau {row['kendall_tau']:.2f}"
    )


def main() -> None:
    """Prints the figures of a file."""
    parser = argparse.ArgumentParser(description="Predicted against published runs.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--write-docs", action="store_true", help="docs/accuracy.md")
    arguments = parser.parse_args()
    if not arguments.path.is_file():
        parser.error(f"{arguments.path} is no file")
    figures, scored = document(arguments.path)
    if arguments.write_docs:
        from accuracy_page import page

        DOCS.write_text(page(figures, scored), "utf-8")
    print(json.dumps(figures, indent=1) if arguments.json else show(figures))


if __name__ == "__main__":
    main()
