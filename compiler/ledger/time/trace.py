"""A step as a trace: every action of the pipeline's list with its predicted duration.

The actions are those that the runtime executes (`parlay.runtime.timeline`), played with the seconds
that the ledger gives each stage; the file opens in Perfetto and in chrome://tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.time.stages import Pipeline, blocks_of
from parlay.compiler.ledger.time.step import Step, price
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.blocks.parallel import Parallel
from parlay.runtime import timeline, timeline_split
from parlay.runtime.timeline import Action, Timeline

MICROSECONDS: Final = 1e6
KINDS: Final = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
}
SPLIT: Final[dict[str, Callable[[int, int], Timeline]]] = {
    "zero_bubble": timeline_split.zero_bubble,
    "zbv": timeline_split.zbv,
    "dualpipe_v": timeline_split.dualpipe_v,
    "dualpipe": timeline_split.dualpipe,
}


def actions(parallel: Parallel, microbatches: int) -> Timeline:
    """The action list of a schedule."""
    pp, name = parallel.pp, parallel.schedule.name
    match name:
        case "gpipe":
            return timeline.gpipe(pp, microbatches)
        case "interleaved":
            return timeline.interleaved(pp, parallel.schedule["chunks"], microbatches)
        case "one_f_one_b":
            return timeline.one_f_one_b(pp, microbatches)
    return SPLIT[name](pp, microbatches)


def trace(spec: Spec, layout: Layout, *, most: int | None = None) -> dict[str, Any]:
    """The trace of one step; `most` shortens it to so many microbatches, which it then says."""
    step = price(spec, layout)
    shown = shortened(spec.parallel, step.microbatches, most)
    line = actions(spec.parallel, shown)
    costs = _costs(spec, step.pipeline, layout, line)
    hop = step.parts.get("pp", 0.0) * step.efficiency.factors["pp"]
    each = hop / (2 * step.microbatches) if step.microbatches else 0.0
    ends = line.play(lambda action: costs[action.stage][action.kind], delay=each)
    events: list[dict[str, Any]] = []
    for rank, moments in enumerate(ends):
        events.append(_named(rank, spec.parallel, layout))
        for action, end in zip(line.actions[rank], moments, strict=True):
            took = costs[action.stage][action.kind]
            events.append(_slice(rank, action, end - took, took, line.chunk_of(action.stage)))
    last = max(moments[-1] for moments in ends)
    events += _after(step, last, spec.parallel.pp)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "step_seconds": step.seconds,
            "microbatches": step.microbatches,
            "microbatches_shown": shown,
            "schedule": spec.parallel.schedule.name,
        },
    }


def shortened(parallel: Parallel, microbatches: int, most: int | None) -> int:
    """How many microbatches are shown: a number that the schedule allows."""
    if most is None or most >= microbatches:
        return microbatches
    if parallel.schedule.name == "interleaved":
        return max(parallel.pp, most // parallel.pp * parallel.pp)
    least = {"zbv": 2 * parallel.pp, "dualpipe_v": 2 * parallel.pp, "dualpipe": 2 * parallel.pp}
    shown = max(most, least.get(parallel.schedule.name, 1))
    return min(microbatches, shown + shown % 2 if parallel.schedule.name == "dualpipe" else shown)


def _costs(
    spec: Spec, pipeline: Pipeline, layout: Layout, line: Timeline
) -> list[dict[str, float]]:
    """Seconds of each kind of action, by stage in the order of the actions."""
    found: list[dict[str, float]] = []
    for stage in layout.stages:
        split = pipeline.split(blocks_of(spec, stage))
        forward, backward = split.forward, split.inputs + split.weights
        found.append({"F": forward, "B": backward, "I": split.inputs, "W": split.weights})
    assert len(found) == line.stages, "a layout has a stage for each of the actions'"
    return found


def _named(rank: int, parallel: Parallel, layout: Layout) -> dict[str, Any]:
    held = [stage for stage in layout.stages if stage.stage == rank]
    layers = ", ".join(f"{stage.first}-{stage.last}" for stage in held)
    name = f"pipeline rank {rank}: layers {layers}"
    return {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": name}}


def _slice(rank: int, action: Action, start: float, took: float, chunk: int) -> dict[str, Any]:
    return {
        "name": f"{action.kind}{action.microbatch}",
        "cat": KINDS[action.kind],
        "ph": "X",
        "ts": round(start * MICROSECONDS, 3),
        "dur": round(took * MICROSECONDS, 3),
        "pid": 0,
        "tid": rank,
        "args": {"microbatch": action.microbatch, "stage": action.stage, "chunk": chunk},
    }


def _after(step: Step, start: float, ranks: int) -> Iterator[dict[str, Any]]:
    """What comes once a step, on every rank: exposed traffic, optimizer, waiting."""
    for name in ("dp", "optimizer", "straggle"):
        took = step.parts.get(name, 0.0) * step.efficiency.factors[name]
        if not took:
            continue
        for rank in range(ranks):
            yield {
                "name": name,
                "cat": "once a step",
                "ph": "X",
                "ts": round(start * MICROSECONDS, 3),
                "dur": round(took * MICROSECONDS, 3),
                "pid": 0,
                "tid": rank,
            }
        start += took
