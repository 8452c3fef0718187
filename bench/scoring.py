"""How good predictions are: relative errors, and the ranking of layouts on equal work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median
from typing import Any

from rows import Case

APART = 0.02
"""Layouts closer than this are not told apart: repeats of one run differ as much."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A case with its predicted tokens/s a GPU."""

    case: Case
    predicted: float

    @property
    def error(self) -> float:
        """Of the step time, signed: predicted / measured − 1."""
        return self.case.tokens / self.predicted - 1.0


def summary(errors: Iterable[float]) -> dict[str, Any]:
    """Count, median, 90th percentile and worst of |errors|."""
    sizes = sorted(map(abs, errors))
    if not sizes:
        return {"count": 0, "median": None, "p90": None, "worst": None}
    return {
        "count": len(sizes),
        "median": median(sizes),
        "p90": sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        "worst": sizes[-1],
    }


def bias(scored: Sequence[Scored], key: Callable[[Case], str]) -> dict[str, float]:
    """The median signed error of each class: below zero where runs take longer than predicted."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one in scored:
        groups[key(one.case)].append(one.error)
    return {name: median(errors) for name, errors in sorted(groups.items())}


CLASSES = ("dense_bf16", "dense_fp8", "dense_fp4", "moe", "finetune")


def by(
    scored: Sequence[Scored], key: Callable[[Case], str], always: Sequence[str] = ()
) -> dict[str, Any]:
    """`summary` of each class of cases; those of `always` are there without a case, too."""
    groups: dict[str, list[float]] = defaultdict(list, {name: [] for name in always})
    for one in scored:
        groups[key(one.case)].append(one.error)
    return {name: summary(groups[name]) for name in sorted(groups)}


def layout_of(case: Case) -> tuple[Any, ...]:
    """What tells layouts apart."""
    p, train = case.spec.parallel, case.spec.train
    assert train is not None
    return (
        *(p.tp, p.pp, p.cp, p.ep, p.dp, p.zero, p.shard, p.sequence_parallel),
        *(p.schedule.name, p.schedule.get("chunks", 1), train.micro_batch),
        *(train.recompute.name, train.recompute.flags, train.gradients),
    )


def ranking(scored: Sequence[Scored]) -> dict[str, Any]:
    """Over groups of equal work with at least two layouts: regret of the predicted best, pairs.

    Repeats of one layout count as their median. Regret is the measured time of the layout that is
    predicted best over that of the best one, less one.
    """
    groups: dict[tuple[str, ...], dict[tuple[Any, ...], list[Scored]]] = defaultdict(dict)
    for one in scored:
        groups[one.case.work].setdefault(layout_of(one.case), []).append(one)
    regrets: list[float] = []
    taus: list[float] = []
    right = pairs = 0
    for layouts in groups.values():
        if len(layouts) < 2:
            continue
        times = [
            (median(1 / s.predicted for s in rows), median(1 / s.case.tokens for s in rows))
            for rows in layouts.values()
        ]
        best = min(measured for _, measured in times)
        regrets.append(min(times)[1] / best - 1.0)
        agreed = 0
        for (p1, m1), (p2, m2) in combinations(times, 2):
            same = (p1 - p2) * (m1 - m2) > 0
            agreed += 1 if same else -1
            if max(m1, m2) / min(m1, m2) - 1 > APART:
                pairs += 1
                right += same
        taus.append(agreed / (len(times) * (len(times) - 1) / 2))
    return {
        "groups": len(regrets),
        "median_regret": median(regrets) if regrets else None,
        "mean_regret": mean(regrets) if regrets else None,
        "pairs_right": right / pairs if pairs else None,
        "kendall_tau": mean(taus) if taus else None,
    }


def flat(case: Case) -> float:
    """Tokens/s a GPU at half the peak, less the 1F1B bubble: what any predictor must beat."""
    from parlay.compiler.ledger import flops
    from parlay.compiler.ledger.recipe import microbatches

    spec = case.spec
    assert spec.train is not None and spec.cluster is not None
    peak = flops.peak(spec.cluster.node.gpu, spec.train.precision) or 989.4e12
    m, p = microbatches(spec), spec.parallel.pp
    chunks = spec.parallel.schedule.get("chunks", 1)
    busy = m / (m + (p - 1) / chunks)
    return 0.5 * peak * busy / flops.per_token(spec)


KINDS: dict[str, Callable[[Case], str]] = {
    "by_class": lambda c: c.kind,
    "by_class_accelerator": lambda c: f"{c.kind}/{c.accelerator}",
    "by_source": lambda c: c.source or "unnamed",
}
"""The tables of the report, and what a case is called in each."""


def report(scored: Sequence[Scored]) -> dict[str, Any]:
    """The figures of the time side."""
    stated = [s for s in scored if s.case.stated]
    rest = summary(s.error for s in scored if not s.case.stated)
    return {
        "step_time": summary(s.error for s in stated),
        "ranking": ranking(scored),
        "unstated": {name: rest[name] for name in ("count", "median", "p90")},
        "all": summary(s.error for s in scored),
        "by_class": by(scored, KINDS["by_class"], CLASSES),
        "by_class_accelerator": by(scored, KINDS["by_class_accelerator"]),
        "by_source": by(scored, KINDS["by_source"]),
        "bias": {title: bias(scored, key) for title, key in KINDS.items()},
    }
