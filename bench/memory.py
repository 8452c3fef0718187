"""Predicted beside measured peak memory: `python bench/memory.py RUNS.csv [--worst N] [--json]`.

Each row becomes a `.par` of its columns alone; rows that lack a column are skipped, and counted.
Errors are |predicted / measured - 1| of the last pipeline stage's rank, in percent. Rows that do
not state their attention kernel, or over how many ranks state is sharded, are priced with the
source's usual setting and reported apart.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from megatron_tests import Row, Unsaid, dp_stated, par_of, zero_of
from parlay.compiler.layout import lay_out
from parlay.compiler.ledger.memory import account
from parlay.compiler.spec.resolve import resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source
from rows import read, unreadable

NEEDED = ("layers", "hidden", "heads", "seq", "tp", "pp", "micro_batch", "peak_mem_gib", "gpu")


@dataclass(frozen=True)
class Result:
    """One row: its class, predicted and measured bytes."""

    row: Row
    kind: str
    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("path", type=Path)
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst rows to list")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not arguments.path.is_file():
        parser.error(f"{arguments.path} is no file")
    results: list[Result] = []
    skipped: Counter[str] = Counter()
    for row in read(arguments.path):
        made = predict(row)
        if isinstance(made, str):
            skipped[made] += 1
        else:
            results.append(made)
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.kind].append(result)
    summary = {kind: summarise(group) for kind, group in sorted(groups.items())}
    if arguments.json:
        print(json.dumps({"version": 1, "memory": summary, "skipped": skipped}, indent=2))
        return
    print(f"{'class':34} {'rows':>5} {'median':>8} {'p90':>8} {'worst':>8}")
    for kind, figures in summary.items():
        shares = "".join(f" {100 * figures[name]:7.2f}%" for name in ("median", "p90", "worst"))
        print(f"{kind:34} {figures['count']:5}{shares}")
    for reason, number in skipped.items():
        print(f"skipped {number}: {reason}")
    for result in sorted(results, key=lambda each: -abs(each.error))[: arguments.worst]:
        print(f"{100 * result.error:+7.2f}%  {result.row['id']}  {result.row['model']}")


def summarise(results: list[Result]) -> dict[str, float]:
    """Count, median, 90th percentile and worst of the absolute errors, as shares."""
    errors = sorted(abs(result.error) for result in results)
    high = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
    return {
        "count": len(errors),
        "median": median(errors),
        "p90": min(high, errors[-1]),
        "worst": errors[-1],
    }


def predict(row: Row) -> Result | str:
    """The row's prediction, or why there is none."""
    missing = [name for name in NEEDED if not row.get(name)]
    if missing:
        return f"{missing[0]} is not stated"
    wrong = unreadable(row)
    if wrong:
        return wrong
    try:
        text = par_of(row)
    except Unsaid as reason:
        return str(reason)
    except (ArithmeticError, ValueError) as fault:
        return f"a column that cannot be read: {fault}"
    file, told = parse(Source("row.par", text))
    phases, more = resolve(file, lambda _: (None, ()))
    if told or more:
        return f"{(*told, *more)[0].message}"
    spec = phases[0].spec
    try:
        assert spec.model is not None and spec.model.head_dim, "no head has a width"
        last = account(spec, lay_out(spec)).classes[-1]
    except (AssertionError, ArithmeticError, LookupError, ValueError) as refusal:
        return f"no such layout: {refusal}"
    exact = re.search(r"exact bytes (\d+)", row["notes"])
    measured = int(exact[1]) if exact else round(float(row["peak_mem_gib"]) * 2**30)
    return Result(row, kind_of(row), last.peak_bytes, measured)


def kind_of(row: Row) -> str:
    """The class that a row is reported in."""
    family = "experts" if row["experts"] else "cp" if row["cp"] not in ("", "1") else "dense"
    low = f", {row['precision']}" if row["precision"].startswith("fp8") else ""
    stated = "" if row["attention"] else ", kernel not stated"
    sharded = bool(zero_of(row["zero_stage_or_sharding"]))
    ranks = ", dp not stated" if sharded and not dp_stated(row) else ""
    return f"{family}{low}{stated}{ranks}"


if __name__ == "__main__":
    main()
