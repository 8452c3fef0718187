"""Diagnostics as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from parlay.dsl.diagnostics.order import in_order
from parlay.dsl.diagnostics.places import region, well_formed
from parlay.dsl.diagnostics.record import Diagnostic, Edit, Fix
from parlay.dsl.source import Source, Span

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, Source],
    *,
    version: str | None = None,
    titles: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A log of one run. `titles` are the rules' one-line titles by code, where they are known;
    `version` is Parlay's."""
    told = in_order(diagnostics)
    codes = sorted({one.code for one in told})
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "parlay",
                        **({"version": version} if version else {}),
                        "rules": [_rule(code, titles or {}) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(one, codes.index(one.code), sources) for one in told],
            }
        ],
    }


def _rule(code: str, titles: Mapping[str, str]) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": code}
    if code in titles:
        rule["shortDescription"] = {"text": titles[code]}
    rule["help"] = {"text": f"`parlay explain {code}` prints the reason and an example."}
    return rule


def _result(one: Diagnostic, index: int, sources: Mapping[str, Source]) -> dict[str, Any]:
    # What has no place of its own in the format becomes part of the message.
    text = [one.message, *one.notes, *(f"help: {help}" for help in one.help)]
    result: dict[str, Any] = {
        "ruleId": one.code,
        "ruleIndex": index,
        "level": str(one.severity),
        "message": {"text": well_formed("\n".join(text))},
        "locations": [{"physicalLocation": _location(one.file, one.span, sources)}],
    }
    related = [
        {
            "id": number,
            "physicalLocation": _location(label.span.file, label.span, sources),
            "message": {"text": well_formed(label.text)},
        }
        for number, label in enumerate(one.labels[1:], 1)
    ]
    if related:
        result["relatedLocations"] = related
    if one.fixes:
        result["fixes"] = [_fix(fix, sources) for fix in one.fixes]
    return result


def _location(file: str, span: Span | None, sources: Mapping[str, Source]) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(file)}
    if (place := _region(span, sources)) is not None:
        location["region"] = place
    return location


def _artifact(file: str) -> dict[str, str]:
    path = well_formed(file).replace("\\", "/")
    return {"uri": ("file://" if path.startswith("/") else "") + quote(path, safe="/")}


def _region(span: Span | None, sources: Mapping[str, Source]) -> dict[str, int] | None:
    place = region(span, sources)
    if span is None or place is None:
        return None
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
        "charOffset": span.start,
        "charLength": span.end - span.start,
    }


def _fix(fix: Fix, sources: Mapping[str, Source]) -> dict[str, Any]:
    by_file: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.span.file, []).append(edit)
    return {
        "description": {"text": well_formed(fix.title)},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(file),
                "replacements": [_replacement(edit, sources) for edit in edits],
            }
            for file, edits in by_file.items()
        ],
    }


def _replacement(edit: Edit, sources: Mapping[str, Source]) -> dict[str, Any]:
    deleted = _region(edit.span, sources) or {
        "charOffset": edit.span.start,
        "charLength": edit.span.end - edit.span.start,
    }
    return {"deletedRegion": deleted, "insertedContent": {"text": well_formed(edit.text)}}
