"""A job with more of its fields decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parlay.compiler.checks.degrees import degrees_hold
from parlay.compiler.checks.subject import Subject
from parlay.compiler.planner.stem import Stem


def decided(subject: Subject, values: Mapping[str, Any]) -> Subject:
    """The job with fields of lists decided, which nothing else follows from."""
    if not values:
        return subject
    changed: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        block, _, name = path.partition(".")
        changed.setdefault(block, {})[name] = value
    spec = subject.spec
    for block, fields in changed.items():
        spec = replace(spec, **{block: replace(getattr(spec, block), **fields)})
    left = {path: open_ for path, open_ in subject.open.items() if path not in values}
    return replace(subject, spec=spec, open=left)


def with_values(subject: Subject, values: Mapping[str, Any]) -> Subject:
    """The job with more fields decided; dp is no longer open once it follows."""
    deeper = subject.with_values(values)
    if "parallel.dp" in deeper.open and deeper.parallel.dp is not None:
        left = {p: o for p, o in deeper.open.items() if p != "parallel.dp"}
        deeper = replace(deeper, open=left)
    return deeper


def standing(stem: Stem, subject: Subject) -> Subject | None:
    """The job with the first order and state of a stem that make a grid, if there are any."""
    if degrees_hold(subject):
        return subject
    for order in stem.lists["order"].ways:
        for state in stem.lists["state"].ways:
            other = with_values(subject, {**order, **state})
            if degrees_hold(other):
                return other
    return None
