"""docs/accuracy.md from the figures: what was reached, by class and source, and the worst rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fit import fit, measured_seconds
from memory_page import section
from parlay.compiler.ledger.memory import account
from parlay.compiler.ledger.time import time_of
from parlay.compiler.ledger.time.step import price
from rows import Case
from scoring import Scored, summary
from split import FOLDS, whole_sources

WORST = 25
BARS = (
    ("dense bf16, A100", "dense_bf16/A100", 0.05, 0.15),
    ("dense bf16, H100", "dense_bf16/H100", 0.04, 0.10),
    ("dense fp8", "dense_fp8", 0.08, 0.22),
    ("mixture of experts", "moe", 0.15, 0.45),
)
HEAD = """# How well the ledger prices published runs

Written by `python bench/accuracy.py RUNS.csv --write-docs`; not edited by hand.

Every figure is |predicted / measured − 1| of the step time, cross-validated: a row is priced by a
table of efficiencies whose fit saw no row of its group, that is of its stack and its model's widths
(`bench/split.py`, {folds} folds, tables in `bench/folds/`). Of a row's identity only its software
stack enters (`bench/stacks.py`). "flat" is what half of the peak with the 1F1B bubble gets on the
same rows. Rows whose recompute or attention kernel is not stated are priced with their source's
usual setting. "bias" is the median with its sign: below zero where runs take longer than predicted.
[Runs that no fit has seen](public_runs.md) have a page of their own.
"""


def page(figures: Mapping[str, Any], scored: Sequence[Scored]) -> str:
    """The page."""
    lines = [HEAD.format(folds=FOLDS)]
    lines += ["## Against the bar", "", *_bars(figures, scored), ""]
    lines += ["## By class", "", *_table(figures, "by_class"), ""]
    lines += ["## By class and accelerator", "", *_table(figures, "by_class_accelerator"), ""]
    lines += ["## By source", "", *_table(figures, "by_source"), ""]
    lines += ["## Ranking layouts of equal work", "", *_ranking(figures), ""]
    lines += ["## Memory", "", *section(figures), ""]
    lines += ["## Rows left out", "", "| rows | why |", "|---:|---|"]
    lines += [f"| {n} | {why} |" for why, n in figures["skipped"].items()]
    lines += ["", f"## The {WORST} worst rows", "", *_worst(scored), ""]
    lines += [LIMITS]
    return "\n".join(lines)


LIMITS = """## What is not modelled

- Which kernels a release chose, beyond a factor for each generation of a stack: releases of one
  stack differ by up to 1.7 times on mixtures of experts.
- Recompute and offload that a source does not state: where a run would not fit without them, the
  prediction is too fast.
- Scaling granularity of fp8 (row-wise against tensor-wise), memory pressure of the allocator,
  power and thermal limits, other jobs on the network.
- Hybrid layers (Mamba), and shapes that a row does not state.
"""


def _figures(row: Mapping[str, Any]) -> str:
    return f"{row['count']} | {row['median']:.1%} | {row['p90']:.1%} | {row['worst']:.1%}"


def _table(figures: Mapping[str, Any], title: str) -> Iterator[str]:
    yield "| | rows | median | 90th percentile | worst | bias | flat median | flat 90th |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, row in figures[title].items():
        if not row["count"]:
            continue
        flat, bias = figures["baseline"][title][name], figures["bias"][title][name]
        beside = f"{bias:+.1%} | {flat['median']:.1%} | {flat['p90']:.1%}"
        yield f"| {name} | {_figures(row)} | {beside} |"


def _bars(figures: Mapping[str, Any], scored: Sequence[Scored]) -> Iterator[str]:
    yield "| | rows | median | 90th percentile | worst | asked |"
    yield "|---|---:|---:|---:|---:|---:|"
    known = {**figures["by_class"], **figures["by_class_accelerator"]}
    for title, name, middle, high in BARS:
        if name in known and known[name]["count"]:
            yield f"| {title} | {_figures(known[name])} | {middle:.0%} / {high:.0%} |"
    blackwell = [s for s in scored if s.case.accelerator == "Blackwell"]
    dense = summary(s.error for s in blackwell if s.case.kind.startswith("dense"))
    if dense["count"]:
        yield f"| dense, Blackwell | {_figures(dense)} | 9% / 22% |"
    out = left_out([s.case for s in scored])
    if out["count"]:
        yield f"| dense, its whole source left out | {_figures(out)} | 9% / 28% |"


def left_out(cases: Sequence[Case]) -> dict[str, Any]:
    """Errors of dense rows priced by a fit that saw no row of their source."""
    errors: list[float] = []
    for _, seen, tested in whole_sources(cases):
        table = fit([cases[i] for i in seen])
        for i in tested:
            if cases[i].kind.startswith("dense"):
                made = price(cases[i].spec, cases[i].layout, table).seconds
                errors.append(made / measured_seconds(cases[i]) - 1)
    return summary(errors)


def _ranking(figures: Mapping[str, Any]) -> Iterator[str]:
    yield "| | groups | median regret | mean regret | pairs right | Kendall's tau |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, row in (("ledger", figures["ranking"]), ("flat", figures["baseline"]["ranking"])):
        if row["groups"]:
            pairs = "" if row["pairs_right"] is None else f"{row['pairs_right']:.1%}"
            yield (
                f"| {name} | {row['groups']} | {row['median_regret']:.1%} | "
                f"{row['mean_regret']:.1%} | {pairs} | {row['kendall_tau']:.2f} |"
            )
    yield ""
    yield "Asked: regret at most 1 % in the median and 3 % in the mean, 80 % of pairs right."


def _worst(scored: Sequence[Scored]) -> Iterator[str]:
    yield "| row | model | accelerator | layout | error | probable reason |"
    yield "|---|---|---|---|---:|---|"
    for one in sorted(scored, key=lambda s: -abs(s.error))[:WORST]:
        row = one.case.row
        p, train = one.case.spec.parallel, one.case.spec.train
        assert train is not None
        degrees = (("tp", p.tp), ("pp", p.pp), ("cp", p.cp), ("ep", p.ep), ("dp", p.dp))
        layout = " ".join(f"{name}{n}" for name, n in degrees if n > 1)
        yield (
            f"| {row['id']} | {row['model']} | {row['gpu']} | {layout} mb{train.micro_batch} "
            f"| {one.error:+.0%} | {reason(one)} |"
        )


def reason(one: Scored) -> str:
    """Why a prediction is far off, as far as the row itself tells."""
    case, row = one.case, one.case.row
    gpu = case.spec.cluster.node.gpu.memory_bytes if case.spec.cluster else 0
    if case.outlier:
        return "differs from rows of the same work; flagged as unexplained"
    if "rowwise" in row["precision"]:
        return "row-wise scaling, priced as tensor-wise"
    unsaid = one.error < 0 and not row["recompute"]
    if unsaid and account(case.spec, case.layout).worst.peak_bytes > 1.1 * gpu:
        return "recompute or offload not stated: it would not fit without"
    if case.kind == "moe":
        return "kernels of this release (mixture of experts)"
    fold = time_of(case.spec, case.layout)
    most = max(fold.shares, key=lambda share: share.seconds)
    return f"not known; {most.seconds / fold.step_seconds:.0%} of the step is {most.name}"
