"""`parlay plan`: the best of all layouts that a file leaves open."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline
from parlay.compiler.commands.fix import apply
from parlay.compiler.commands.plan_tables import Load, longer, print_loads, print_plan
from parlay.compiler.commands.plan_writing import edits_of
from parlay.compiler.commands.printing import failed, print_json, refused, show
from parlay.compiler.commands.rewrite import reason, rewrite
from parlay.compiler.ledger.goodput import checkpoint_bytes
from parlay.compiler.ledger.reload import Placed, reload
from parlay.compiler.planner import (
    DEGREES,
    Candidate,
    Plan,
    degrees,
    mfu,
    plan,
    settled,
    spelling,
)
from parlay.compiler.planner.sets import Bound
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics.cells import harmless


def run(
    path: Path,
    *,
    phase: str | None = None,
    objective: str = "step_time",
    top: int = 5,
    targets: Sequence[str] = (),
    write: bool = False,
    json: bool = False,
) -> int:
    """Prints the plan of every phase that leaves something open, or of one.

    1 where the file has errors, or no layout of a phase is legal.
    """
    job = pipeline.checked(pipeline.load(path), targets)
    if refused(job):
        return failed(job, json=json)
    chosen = planned(job.phases, phase)
    if isinstance(chosen, str):
        print(f"{harmless(str(path))}: {chosen}", file=sys.stderr)
        return failed(job, words=chosen, json=json)
    plans = [
        plan(each, job.sources, objective=objective, most=top, targets=targets) for each in chosen
    ]
    if json:
        print_json(document(job.phases, plans))
    else:
        for each in plans:
            print_plan(path, each)
        print_loads(loads(job.phases, plans))
    if not all(each.best.top for each in plans):
        return 1
    return _write(job, plans, targets) if write else 0


def planned(phases: Sequence[Phase], name: str | None) -> list[Phase] | str:
    """The phases to plan, or why there are none."""
    if name is not None:
        named = [each for each in phases if each.name == name]
        if not named:
            return f"no phase is called {name}; there are: {', '.join(p.name for p in phases)}"
        phases = named
    found = []
    for each in phases:
        if each.spec.model is None or each.spec.cluster is None or each.spec.train is None:
            return "a plan needs a model, a cluster and `train`"
        if not each.open:
            continue
        number = degrees(each)
        if number > DEGREES:
            where = "" if each.name == "main" else f' of phase "{each.name}"'
            return (
                f"the open degrees{where} leave {number:,} combinations, more than {DEGREES:,}: "
                "say more of some, as `auto in [1, 2, 4, 8]` or `auto <= 8`"
            )
        found.append(each)
    return found or "nothing is open: no field is `auto` but those that follow from others"


# ── From phase to phase ───────────────────────────────────────────────────────


def loads(phases: Sequence[Phase], plans: Sequence[Plan]) -> list[Load]:
    """What a phase loads of the one before it under the layouts that were chosen.

    Of each pair of phases that both have a layout.
    """
    chosen = {
        each.phase.name: settled(each.phase, each.best.top[0]) for each in plans if each.best.top
    }
    placed: list[tuple[str, Placed] | None] = []
    for phase in phases:
        whole = chosen.get(phase.name, phase)
        layout = None if whole.open or whole.spec.model is None else pipeline.lay_out(whole)
        placed.append(None if layout is None else (phase.name, Placed(whole.spec, layout)))
    found = []
    for before, after in pairwise(placed):
        if before is not None and after is not None:
            (from_, one), (to, other) = before, after
            found.append(Load(from_, to, checkpoint_bytes(other.spec), reload(one, other)))
    return found


# ── Writing ───────────────────────────────────────────────────────────────────


def _write(job: pipeline.Job, plans: Sequence[Plan], targets: Sequence[str]) -> int:
    """The best layouts into the file, where the result checks clean; comments stay."""
    edits = edits_of(job, plans)
    if not edits:
        print(
            f"{job.path}: not written: the open fields do not stand in this file; they become "
            + "; ".join(map(_told, plans)),
            file=sys.stderr,
        )
        return 1
    after = apply(job.sources[str(job.path)].text, edits)
    result = pipeline.check(job.path, targets, {job.path.resolve(): after})
    if result.errors:
        show([result], summary=True, stream=sys.stderr)
        print(f"{job.path}: not written", file=sys.stderr)
        return 1
    try:
        rewrite(job.path, after)
    except OSError as failure:
        print(f"{job.path}: not written: {reason(failure)}", file=sys.stderr)
        return 1
    print(f"{job.path}: written", file=sys.stderr)
    return 0


def _told(found: Plan) -> str:
    where = "" if found.phase.name == "main" else f"{found.phase.name}: "
    chosen = found.best.top[0].chosen
    return where + ", ".join(f"{path} = {spelling(value)}" for path, value in chosen.items())


# ── JSON ──────────────────────────────────────────────────────────────────────


def document(phases: Sequence[Phase], plans: Sequence[Plan]) -> dict[str, Any]:
    """`parlay plan --json`: the first plan at the root, as where there is one alone; then all."""
    entries = [entry(each) for each in plans]
    return {
        "version": 1,
        **entries[0],
        "phases": entries,
        "loads": [
            {
                "from": each.before,
                "to": each.after,
                "reshards": each.found.reshards,
                "bytes": each.value_bytes,
                "cuts": [{"field": cut.path, "words": cut.words} for cut in each.found.cuts],
            }
            for each in loads(phases, plans)
        ],
    }


def entry(found: Plan) -> dict[str, Any]:
    """The plan of one phase."""
    tally, best, gap = found.tally, found.best, found.gap
    left = {} if gap is None else gap.values
    return {
        "phase": found.phase.name,
        "objective": best.objective,
        "searched": tally.searched,
        "unsearched": tally.unsearched,
        "legal": tally.legal,
        "outdone": tally.outdone,
        "rejected": dict(tally.rejected.most_common()),
        "exact": gap is None,
        "at_least": None if gap is None else _bound(gap.least),
        "best": _entry(found, best.top[0]) if best.top else None,
        "runners_up": [
            {**_entry(found, each), "more": longer(each, best.top[0])} for each in best.top[1:]
        ],
        "pareto": [
            {
                **_named(each.chosen),
                **_figures(each),
                "proven": gap is None or not gap.below(_taken(each)),
                "more": longer(each, best.top[0]),
            }
            for each in (best.fastest_first() if best.top else ())
        ],
        "by_value": [
            {
                "field": path,
                "value": value,
                **_figures(each),
                "proven": (path, value) not in left or found.proven(each, left[path, value]),
            }
            for (path, value), each in best.by_value.items()
        ],
        "never": [
            {"field": path, "value": value, "rejected": dict(codes.most_common())}
            for (path, value), codes in tally.by_value.items()
            if (path, value) not in best.by_value and (path, value) not in left
        ],
        "unknown": [
            {"field": path, "value": value, "at_least": _bound(bound)}
            for (path, value), bound in left.items()
            if (path, value) not in best.by_value
        ],
        "fewest_gpus": found.fewest_gpus,
        "fewest_at_least": found.fewest_at_least,
        "seconds": found.seconds,
    }


def _entry(found: Plan, each: Candidate) -> dict[str, Any]:
    return {**_named(each.chosen), **_figures(each), "proven": found.proven(each)}


def _bound(bound: Bound) -> dict[str, float]:
    return {"step_seconds": bound.seconds, "peak_bytes": bound.bytes}


def _taken(each: Candidate) -> Bound:
    seconds = each.score.step_seconds
    return Bound(float("inf") if seconds is None else seconds, each.score.peak_bytes)


def _named(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {path.rpartition(".")[2]: _plain(value) for path, value in chosen.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return list(value) if isinstance(value, tuple) else spelling(value)


def _figures(each: Candidate) -> dict[str, Any]:
    score = each.score
    assert each.subject.spec.cluster is not None
    return {
        "step_seconds": score.step_seconds,
        "peak_bytes": score.peak_bytes,
        "mfu": mfu(each.subject, score.step_seconds),
        "gpus": each.subject.spec.cluster.gpus,
    }
