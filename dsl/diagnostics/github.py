"""Diagnostics as GitHub workflow commands, which become annotations of a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.diagnostics.order import in_order
from parlay.dsl.diagnostics.places import region, well_formed
from parlay.dsl.diagnostics.record import Diagnostic, Severity
from parlay.dsl.source import Source

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def to_github(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> str:
    """One line a diagnostic, each ending in a newline; whoever reads the log obeys none of it."""
    return "".join(_line(one, sources) + "\n" for one in in_order(diagnostics))


def _line(one: Diagnostic, sources: Mapping[str, Source]) -> str:
    properties = [("file", one.file)]
    place = region(one.span, sources)
    if place is not None:
        properties.append(("line", str(place.line)))
        # GitHub takes columns only within one line, and its last column belongs to the place.
        if place.line == place.end_line:
            last = max(place.column, place.end_column - 1)
            properties += [("col", str(place.column)), ("endColumn", str(last))]
        else:
            properties.append(("endLine", str(place.end_line)))
    properties.append(("title", one.code))
    text = [one.message, *(label.text for label in one.labels[:1] if label.text), *one.notes]
    text += [f"help: {help}" for help in one.help]
    written = ",".join(f"{name}={_property(value)}" for name, value in properties)
    lines = (harmless(line) for part in text for line in part.split("\n"))
    return f"::{_COMMANDS[one.severity]} {written}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    text = well_formed(text)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(harmless(text)).replace(":", "%3A").replace(",", "%2C")
