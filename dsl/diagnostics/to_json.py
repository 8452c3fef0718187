"""Diagnostics as JSON: the shapes of `check --json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parlay.dsl.diagnostics.order import count, in_order
from parlay.dsl.diagnostics.places import region, well_formed
from parlay.dsl.diagnostics.record import Diagnostic, Severity
from parlay.dsl.source import Source, Span


def file_entry(
    file: str, diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]
) -> dict[str, Any]:
    """One entry of `files`: all that is told of one checked file, in order.

    A diagnostic names its own file, which is an imported one where the place lies there. Lines and
    columns are null where no text exists to point at; offsets are code points from 0, counted
    without a byte-order mark.
    """
    return {
        "file": well_formed(file),
        "diagnostics": [diagnostic_entry(one, sources) for one in in_order(diagnostics)],
    }


def to_json(
    files: Iterable[tuple[str, Iterable[Diagnostic]]], sources: Mapping[str, Source]
) -> dict[str, Any]:
    """The whole document of `check --json` for `(file, diagnostics)` pairs."""
    pairs = [(file, in_order(diagnostics)) for file, diagnostics in files]
    told = [one for _, diagnostics in pairs for one in diagnostics]
    return {
        "version": 1,
        "files": [file_entry(file, diagnostics, sources) for file, diagnostics in pairs],
        "summary": {
            "errors": count(told, Severity.ERROR),
            "warnings": count(told, Severity.WARNING),
        },
    }


def diagnostic_entry(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> dict[str, Any]:
    """One diagnostic."""
    return {
        "code": diagnostic.code,
        "severity": str(diagnostic.severity),
        "message": well_formed(diagnostic.message),
        "file": well_formed(diagnostic.file),
        **_place(diagnostic.span, sources),
        "labels": [
            {
                "file": well_formed(label.span.file),
                **_place(label.span, sources),
                "text": well_formed(label.text),
            }
            for label in diagnostic.labels
        ],
        "notes": [well_formed(text) for text in diagnostic.notes],
        "help": [well_formed(text) for text in diagnostic.help],
        "fixes": [
            {
                "title": well_formed(fix.title),
                "edits": [
                    {
                        "file": well_formed(edit.span.file),
                        "start": edit.span.start,
                        "end": edit.span.end,
                        "text": well_formed(edit.text),
                    }
                    for edit in fix.edits
                ],
            }
            for fix in diagnostic.fixes
        ],
    }


def _place(span: Span | None, sources: Mapping[str, Source]) -> dict[str, int | None]:
    place = region(span, sources)
    if place is None:
        return dict.fromkeys(("line", "column", "end_line", "end_column"))
    return dict(place._asdict())
