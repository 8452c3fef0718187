"""Edits: a field's value replaced, a field inserted into its block, an order written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.schema import Setting, fields_of
from parlay.dsl.diagnostics import Edit, Fix
from parlay.dsl.source import Span


def set_fields(subject: Subject, values: Mapping[str, Any], title: str = "") -> tuple[Fix, ...]:
    """One fix that gives each field of `values` (by path) its new value; none where it cannot.

    A value that the file writes is replaced where it stands; a field that the file leaves out is
    inserted beside another of its block. Without `title` the fix is called by what it sets.
    """
    if not subject.editable or subject.searching:
        return ()
    edits: list[Edit] = []
    for path, value in values.items():
        edit = _set(subject, path, str(value))
        if edit is None:
            return ()
        edits.append(edit)
    words = ", ".join(f"{path.rpartition('.')[2]} = {value}" for path, value in values.items())
    return (Fix(title or words, tuple(_merged(edits))),)


def order_text(axes: tuple[str, ...]) -> str:
    """`[tp, cp, dp, pp]`."""
    return f"[{', '.join(axes)}]"


def _set(subject: Subject, path: str, text: str) -> Edit | None:
    place = _written(subject, path)
    if place is not None:
        return Edit(place, text)
    block, _, name = path.rpartition(".")
    neighbour = _neighbour(subject, block)
    if neighbour is None:
        return None
    return Edit(Span(neighbour.file, neighbour.end, neighbour.end), f", {name} = {text}")


def _neighbour(subject: Subject, block: str) -> Span | None:
    """The last value that the file writes right in `block`, where its keyword stands; of a form
    (`adamw(…)`) its last option."""
    at: Any = subject.value(block)
    if at is None:
        return None
    if isinstance(at, Setting):
        file, names = subject.span(block).file, list(at.options)
    else:
        file = subject.origins.block(block).file
        names = [schema.name for schema in fields_of(type(at))]
    written = [_written(subject, f"{block}.{name}") for name in names]
    here = [span for span in written if span is not None and span.file == file]
    return max(here, key=lambda span: span.end, default=None)


def _written(subject: Subject, path: str) -> Span | None:
    """Where the file writes the value of a field, be it `auto`; None where it does not."""
    origin = subject.origins.get(path)
    if origin is None or origin.kind in (Kind.PRESET, Kind.DEFAULT):
        return None
    derived_unwritten = origin.span == subject.origins.block(path.rpartition(".")[0])
    return None if origin.kind is Kind.DERIVED and derived_unwritten else origin.span


def _merged(edits: list[Edit]) -> list[Edit]:
    """Insertions at one place as one edit, so that they may be applied in any order."""
    merged: dict[Span, Edit] = {}
    for edit in edits:
        before = merged.get(edit.span)
        text = edit.text if before is None else before.text + edit.text
        merged[edit.span] = Edit(edit.span, text)
    return list(merged.values())
