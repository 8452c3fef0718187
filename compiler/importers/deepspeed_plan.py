"""What Parlay writes beside its own ds_config.json, which has no keys for it: plan.json, code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from parlay.compiler.importers.written import Draft, listing, number, string, switch, variant

CURVE: Final = re.compile(r"^from parlay\.runtime\.schedule import (\w+)$", re.MULTILINE)
AGAIN: Final = re.compile(r"train\.recompute = (full|selective)(\([a-z_, =0-9]*\))? \(")


def cp_of(plan: Mapping[str, Any]) -> int:
    """Ranks that share a sequence: the engine is told of them in train.py alone."""
    cp = _inside(plan, "mesh", "cp")
    return cp if isinstance(cp, int) and not isinstance(cp, bool) and cp > 0 else 1


def from_plan(plan: Mapping[str, Any], code: str, draft: Draft) -> None:
    """Writes length, steps, seed, schedule, recomputation, data and saves of a plan."""
    for path, given in (
        ("train.seq", _inside(plan, "batch", "seq")),
        ("train.steps", plan.get("steps")),
        ("train.seed", plan.get("seed")),
        ("checkpoint.every", _inside(plan, "checkpoint", "every")),
        ("checkpoint.keep", _inside(plan, "checkpoint", "keep")),
        ("log.every", _inside(plan, "log", "every")),
    ):
        if isinstance(given, int) and not isinstance(given, bool):
            draft.set(path, str(given))
    for path, given in (
        ("data.path", _inside(plan, "data", "path")),
        ("checkpoint.path", _inside(plan, "checkpoint", "path")),
    ):
        if isinstance(given, str):
            draft.set(path, string(given))
    if (form := _inside(plan, "data", "format")) in ("text", "tokens", "megatron"):
        draft.set("data.format", form)
    if isinstance(held := _inside(plan, "checkpoint", "asynchronous"), bool) and held:
        draft.set("checkpoint.async", switch(held))
    counts = [last - first + 1 for first, last in _layers(plan)]
    if len(set(counts)) > 1:
        draft.set("parallel.stages", listing(map(str, counts)))
    curve = CURVE.search(code)
    _schedule(plan.get("lr_schedule"), curve[1] if curve else "", draft)
    if (again := AGAIN.search(code)) is not None:
        given = (part.strip() for part in (again[2] or "").strip("()").split(","))
        kept = ", ".join(part for part in given if part and not part.endswith("= absent"))
        draft.set("train.recompute", f"{again[1]}({kept})" if kept else again[1])
    elif "train.recompute = " in code:
        draft.lost.append("parts of layers that are computed again: model.py has them")


def _schedule(given: Any, curve: str, draft: Draft) -> None:
    """The schedule by its options; which curve leads down stands in train.py alone."""
    found = given if isinstance(given, dict) else {}
    options = {
        name: number(value)
        for name, value in found.items()
        if name in ("warmup", "decay", "min_lr") and isinstance(value, int | float)
    }
    name = curve if curve in ("constant", "cosine", "linear", "wsd") else ""
    if not name:
        name = "wsd" if "decay" in options else "cosine" if "min_lr" in options else "constant"
        draft.assumed.append(f"{name}: the curve of the rate is not given")
    draft.set("train.lr_schedule", variant(name, **options))


def _layers(plan: Mapping[str, Any]) -> list[tuple[int, int]]:
    """First and last layer of each stage, as far as they are numbers."""
    stages = plan.get("stages")
    found = [stage.get("layers") for stage in stages or () if isinstance(stage, dict)]
    return [
        (pair[0], pair[1])
        for pair in found
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, int) for n in pair)
    ]


def _inside(plan: Mapping[str, Any], section: str, name: str) -> Any:
    found = plan.get(section)
    return found.get(name) if isinstance(found, dict) else None
