"""Behind the functions of `parlay.compiler`: the pipeline, with plain data around it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from parlay.compiler import Refused, pipeline
from parlay.compiler.spec.origins import Origin
from parlay.compiler.spec.resolve import Phase, schemas
from parlay.compiler.spec.schema import Open, Setting
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.diagnostics.to_json import file_entry, to_json

_Path = str | PathLike[str]


def load(path: _Path, text: str | None) -> dict[str, Any]:
    """See `parlay.compiler.load`."""
    job = _job(path, text)
    return {
        "version": 1,
        "phases": [_phase(phase) for phase in job.phases],
        **file_entry(str(job.path), job.diagnostics, job.sources),
    }


def check(path: _Path, targets: Sequence[str], text: str | None) -> dict[str, Any]:
    """See `parlay.compiler.check`."""
    job = pipeline.checked(_job(path, text), targets)
    return to_json([(str(job.path), job.diagnostics)], job.sources)


def layout(path: _Path, groups: bool, text: str | None) -> dict[str, Any]:
    """See `parlay.compiler.layout`."""
    from parlay.compiler.layout import to_json as layout_json

    job = _job(path, text)
    layouts = [(phase, pipeline.lay_out(phase)) for phase in job.phases]
    if job.errors or any(found is None for _, found in layouts):
        raise _refused(pipeline.checked(job))
    return {
        "version": 1,
        "phases": [
            plain(layout_json(found, name=phase.name, groups=groups, rank=None))
            for phase, found in layouts
            if found is not None
        ],
    }


def ledger(path: _Path, formulas: bool, text: str | None) -> dict[str, Any]:
    """See `parlay.compiler.ledger`."""
    from parlay.compiler.ledger.asserts import judge
    from parlay.compiler.ledger.asserts import to_json as asserts_json
    from parlay.compiler.ledger.document import ledger as account
    from parlay.compiler.ledger.to_json import to_json as ledger_json

    job = _closed(pipeline.checked(_job(path, text)), "ledger")
    phases = []
    for phase in job.phases:
        found = pipeline.lay_out(phase)
        if found is None or phase.spec.model is None:
            raise Refused(f"{job.path}: the ledger needs a model and a cluster", [])
        book = account(phase, found)
        document = ledger_json(book, formulas=formulas)
        document["asserts"] = asserts_json(judge(phase, book, job.sources))
        phases.append(plain(document))
    entry = file_entry(str(job.path), job.diagnostics, job.sources)
    return {"version": 1, "files": [{**entry, "phases": phases, "error": None}]}


def plan(
    path: _Path, objective: str, top: int, targets: Sequence[str], text: str | None
) -> dict[str, Any]:
    """See `parlay.compiler.plan`."""
    from parlay.compiler.commands.plan import document, planned
    from parlay.compiler.planner import OBJECTIVES
    from parlay.compiler.planner import plan as search

    if objective not in OBJECTIVES:
        raise ValueError(f"objective {objective!r} is none of {', '.join(OBJECTIVES)}")
    job = pipeline.checked(_job(path, text), targets)
    if job.errors:
        raise _refused(job)
    phases = planned(job.phases, None)
    if isinstance(phases, str):
        raise Refused(f"{job.path}: {phases}", [])
    plans = [
        search(phase, job.sources, objective=objective, most=top, targets=targets)
        for phase in phases
    ]
    whole: dict[str, Any] = plain(document(job.phases, plans))
    return whole


def emit(path: _Path, target: str, text: str | None) -> dict[str, str]:
    """See `parlay.compiler.emit`."""
    from parlay.compiler.backends import TARGETS

    if target not in TARGETS:
        raise KeyError(target)
    job = _closed(pipeline.checked(_job(path, text), (target,)), "compile")
    emission = pipeline.emit(job, target)
    if not emission.files:
        raise _refused(replace(job, diagnostics=emission.diagnostics))
    return dict(emission.files)


def _job(path: _Path, text: str | None) -> pipeline.Job:
    at = Path(path)
    return pipeline.load(at, {} if text is None else {Path(os.path.realpath(at)): text})


def _closed(job: pipeline.Job, command: str) -> pipeline.Job:
    """The job, if it has no errors and leaves no degree to the planner."""
    from parlay.compiler.commands.compile import opened

    job = opened(job, command)
    if job.errors:
        raise _refused(job)
    return job


def _refused(job: pipeline.Job) -> Refused:
    entry = file_entry(str(job.path), job.diagnostics, job.sources)
    words = render(job.diagnostics, job.sources, color=False, width=100, summary=True)
    return Refused(words.rstrip("\n"), entry["diagnostics"])


# ── Resolved phases as plain data ─────────────────────────────────────────────


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "fields": {
            path: _value(path, phase, origin)
            for path, origin in sorted(phase.origins.fields.items())
        },
        "open": {path: _open(found) for path, found in sorted(phase.open.items())},
        "targets": {
            name: {"version": target.version, "options": plain(target.options)}
            for name, target in sorted(phase.targets.items())
        },
    }


def _value(path: str, phase: Phase, origin: Origin) -> dict[str, Any]:
    return {
        "value": plain(value_at(phase, path)),
        "shown": origin.shown,
        "origin": str(origin.kind),
        "words": origin.words,
    }


def value_at(phase: Phase, path: str) -> object:
    """The value of a field or of a variant's option in the resolved spec; None without one."""
    value: Any = phase.spec
    at = ""
    for name in path.split("."):
        at = f"{at}.{name}" if at else name
        schema = schemas().get(at)
        if isinstance(value, Setting):
            value = value.get(name)
        else:
            value = getattr(value, schema.attribute if schema else name, None)
    return value


def plain(value: object) -> Any:
    """A resolved value of numbers, strings, lists and dictionaries alone."""
    match value:
        case Setting():
            return {
                "name": value.name,
                "options": {name: plain(each) for name, each in value.options.items()},
                "flags": list(value.flags),
            }
        case tuple() | list():
            return [plain(each) for each in value]
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _open(found: Open) -> dict[str, Any]:
    return {
        "choices": None if found.choices is None else list(found.choices),
        "limit": found.limit,
    }
