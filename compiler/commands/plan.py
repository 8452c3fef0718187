"""`parlay plan`: the best of all layouts that a file leaves open."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline
from parlay.compiler.checks import fix
from parlay.compiler.commands.fix import apply
from parlay.compiler.commands.plan_tables import print_plan
from parlay.compiler.commands.printing import print_json, refused, show
from parlay.compiler.commands.rewrite import reason, rewrite
from parlay.compiler.planner import MOST, Candidate, Plan, layouts, mfu, plan, spelling
from parlay.compiler.spec.resolve import Phase


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
    """Prints the plan; 1 where the file has errors, or no layout is legal."""
    job = pipeline.checked(pipeline.load(path), targets)
    if refused(job):
        return 1
    chosen = planned(job.phases, phase)
    if isinstance(chosen, str):
        print(f"{path}: {chosen}", file=sys.stderr)
        return 1
    found = plan(chosen, job.sources, objective=objective, most=top, targets=targets)
    if json:
        print_json(document(found))
    else:
        print_plan(path, found)
    if not found.best.top:
        return 1
    return _write(job, found, targets) if write else 0


def planned(phases: Sequence[Phase], name: str | None) -> Phase | str:
    """The phase to plan, or why there is none."""
    if name is not None:
        named = [each for each in phases if each.name == name]
        if not named:
            return f"no phase is called {name}; there are: {', '.join(p.name for p in phases)}"
        phases = named
    for each in phases:
        if each.spec.model is None or each.spec.cluster is None or each.spec.train is None:
            return "a plan needs a model, a cluster and `train`"
        if each.open:
            number = layouts(each)
            if number <= MOST:
                return each
            return (
                f"the open fields leave {number:,} layouts, more than {MOST:,}: "
                "say more of some, as `auto in [1, 2, 4, 8]` or `auto <= 8`"
            )
    return "nothing is open: no field is `auto` but those that follow from others"


# ── Writing ───────────────────────────────────────────────────────────────────


def _write(job: pipeline.Job, found: Plan, targets: Sequence[str]) -> int:
    """The best layout into the file, where the result checks clean; comments stay."""
    name, chosen = str(job.path), found.best.top[0].chosen
    texts = {path: spelling(value) for path, value in chosen.items()}
    edits = [edit for each in fix.set_fields(found.subject, texts) for edit in each.edits]
    if not edits or any(edit.span.file != name for edit in edits):
        print(
            f"{job.path}: not written: the open fields do not stand in this file; they become "
            + ", ".join(f"{path} = {text}" for path, text in texts.items()),
            file=sys.stderr,
        )
        return 1
    after = apply(job.sources[name].text, edits)
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


# ── JSON ──────────────────────────────────────────────────────────────────────


def document(found: Plan) -> dict[str, Any]:
    """`parlay plan --json`."""
    tally, best = found.tally, found.best
    return {
        "version": 1,
        "phase": found.phase.name,
        "objective": best.objective,
        "searched": tally.searched,
        "legal": tally.legal,
        "outdone": tally.outdone,
        "rejected": dict(tally.rejected.most_common()),
        "best": _entry(best.top[0]) if best.top else None,
        "runners_up": [_entry(each) for each in best.top[1:]],
        "pareto": [_entry(each) for each in best.fastest_first()],
        "by_value": [
            {"field": path, "value": value, **_figures(each)}
            for (path, value), each in best.by_value.items()
        ],
        "fewest_gpus": found.fewest_gpus,
        "seconds": found.seconds,
    }


def _entry(each: Candidate) -> dict[str, Any]:
    return {**_named(each.chosen), **_figures(each)}


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
