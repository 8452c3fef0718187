"""The memory section of docs/accuracy.md: both kinds of rows, by class and source, worst ones."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from megatron_tests import local
from memory import Result, predict, summarise

PEAKS = Path(__file__).parents[1] / "tests/ledger/peaks.csv"
WORST = 12
SEVEN = "7B, kernel not stated"
ASKED = {
    "dense": "1% / 3%",
    SEVEN: "worst 3%",
    "experts": "5% / 12%",
    "cp": "5% / 12%",
}


def section(figures: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the section; `figures` are those of the file of runs."""
    yield from _peaks()
    yield ""
    yield "Peaks of the file of runs, by source and what it measures:"
    yield ""
    yield "| source | rows | median | 90th percentile | worst |"
    yield "|---|---:|---:|---:|---:|"
    for name, row in figures["memory_by_source"].items():
        yield f"| {name} | {_shares(row)} |"
    yield ""
    reasons = ", ".join(f"{n} {why}" for why, n in figures["memory_skipped"].items())
    yield (
        "Reserved memory is what the ledger predicts times 1.15, one number for all such rows. "
        f"Left out: {reasons}."
    )
    told = figures["out_of_memory"]
    yield ""
    yield (
        f"Of {told['stated']} runs that ran out of memory {told['told_right']} are told so; of "
        f"{told['ran']} that ran {told['ran_told_right']} are told to fit, with the usual "
        "recompute where a row states none."
    )


def _peaks() -> Iterator[str]:
    with PEAKS.open(newline="") as file:
        made = [predict(row) for row in csv.DictReader(file)]
    results = [one for one in made if isinstance(one, Result)]
    skipped = Counter(one for one in made if isinstance(one, str))
    groups: dict[str, list[Result]] = {}
    for one in results:
        kind = SEVEN if "gpt3_7b" in one.row["model"] else one.kind
        groups.setdefault(kind, []).append(one)
    yield (
        f"Peaks exact to the byte, of the last stage's rank in {len(made)} runs of Megatron-LM's "
        "own tests (`tests/ledger/peaks.csv`, `python bench/memory.py`). A test's arguments beside "
        "the columns are read off the words of its name (`bench/megatron_tests.py`). Mechanisms "
        "were found on these rows, and one number was fitted on them: what the allocator leaves "
        "unsplit for each layer, 1.5 MiB."
    )
    yield ""
    yield "| class | rows | median | 90th percentile | worst | asked |"
    yield "|---|---:|---:|---:|---:|---:|"
    for kind in sorted(groups):
        yield f"| {kind} | {_shares(summarise(groups[kind]))} | {ASKED.get(kind, '')} |"
    yield ""
    yield f"{sum(skipped.values())} are left out:"
    yield ""
    yield "| rows | why |"
    yield "|---:|---|"
    for why, number in skipped.most_common():
        yield f"| {number} | {why} |"
    yield ""
    yield "The worst:"
    yield ""
    yield "| row | test | accelerator | error | probable reason |"
    yield "|---|---|---|---:|---|"
    for one in sorted(results, key=lambda each: -abs(each.error))[:WORST]:
        test = one.row["model"].partition("/")[2]
        yield (
            f"| {one.row['id']} | {test} | {one.row['gpu']} | {one.error:+.1%} | "
            f"{reason(one, results)} |"
        )


def reason(one: Result, results: Sequence[Result]) -> str:
    """Why a prediction is off, as far as the row and its likes tell."""
    if not one.row["attention"] and not local(one.row["model"].lower()):
        unfused = predict({**one.row, "attention": "unfused"})
        if isinstance(unfused, Result) and abs(unfused.error) < min(0.05, abs(one.error) / 2):
            return f"ran unfused attention: {unfused.error:+.1%} with it"
    alike = [
        each
        for each in results
        if each is not one
        and each.row["model"].removesuffix("_1node") == one.row["model"].removesuffix("_1node")
    ]
    near = min(alike, key=lambda each: abs(each.error), default=None)
    if near is not None and abs(near.error) < abs(one.error) / 2:
        return f"the same test on {near.row['gpu']} ({near.row['id']}): {near.error:+.1%}"
    if one.row["precision"].startswith("fp8"):
        return "of fp8 the kept inputs alone are priced"
    return "not known"


def _shares(row: Mapping[str, Any]) -> str:
    return f"{row['count']} | {row['median']:.2%} | {row['p90']:.2%} | {row['worst']:.1%}"
