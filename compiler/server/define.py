"""Where a name is defined: lets and fields over imports, imported files, blocks of presets."""

from __future__ import annotations

import os
from pathlib import Path

from parlay.compiler.server.analysis import Analysis
from parlay.compiler.server.spots import Spot, What, full, spot
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase, schemas
from parlay.dsl.source import Span


def define(analysis: Analysis, offset: int) -> tuple[Span, Span] | None:
    """The place asked about and that of its definition; None where there is none.

    The definition of an imported file is its start, which has no text here to look into.
    """
    found = spot(analysis.tree, offset)
    phase = analysis.phase(found.phase) if found else None
    if found is None:
        return None
    if found.what is What.IMPORT:
        target = _imported(analysis, found)
        return (found.span, Span(target, 0, 0)) if target else None
    if phase is None:
        return None
    place = _place(found, phase, analysis)
    return None if place is None else (found.span, place)


def _imported(analysis: Analysis, found: Spot) -> str | None:
    """The name of the imported file, where there is one."""
    if "\0" in found.text:
        return None
    name = str(analysis.path.parent / found.text)
    return name if Path(os.path.realpath(name)).is_file() else None


def _place(found: Spot, phase: Phase, analysis: Analysis) -> Span | None:
    match found.what:
        case What.REF if "." not in found.text:
            return _let(found.text, phase)
        case What.REF:
            return _field(full(found.text), phase)
        case What.LET:
            return _let(found.text, phase)
        case What.FIELD:
            main = analysis.phase(None)
            return _field(found.path, main) if main and found.phase else _field(found.path, phase)
        case What.BLOCK:
            return phase.origins.blocks.get(found.path)
    return None


def _let(name: str, phase: Phase) -> Span | None:
    lets = phase.evaluator.table.lets if phase.evaluator else {}
    return lets[name].name.span if name in lets else None


def _field(path: str, phase: Phase) -> Span | None:
    """The field's name where it is written, else the `from` string or block that its value has."""
    entry = phase.evaluator.table.fields.get(path) if phase.evaluator else None
    if entry is not None:
        return entry.name
    origin = phase.origins.get(path)
    if origin is not None and (origin.kind is not Kind.DERIVED or path not in schemas()):
        return origin.span
    block = path.rpartition(".")[0]
    return phase.origins.blocks.get(path) or phase.origins.blocks.get(block)
