"""What is told about a file: one record, rendered for a terminal, JSON, SARIF or GitHub."""

from parlay.dsl.diagnostics.record import (
    Diagnostic,
    Edit,
    Fix,
    Label,
    Severity,
    error,
    note,
    warning,
)

__all__ = ["Diagnostic", "Edit", "Fix", "Label", "Severity", "error", "note", "warning"]
