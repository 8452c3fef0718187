"""Arguments and launch script for Megatron-LM: the same layout, in its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parlay.compiler.backends.complete import complete, missing
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.megatron.argument import CODE, Argument
from parlay.compiler.backends.megatron.launch import files
from parlay.compiler.backends.megatron.translation import pieces
from parlay.compiler.backends.rules import found
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """Every field that asks for what Megatron-LM cannot express, and what is not applied.

    Where a rule of its own has told a place already, nothing else is told there.
    """
    told = list(found("megatron", phase))
    yield from told
    yield from (lacking := list(missing(phase, "megatron", CODE)))
    if lacking or not complete(phase):
        return
    places = {diagnostic.span for diagnostic in told}
    for section in pieces(phase, lay_out(phase.spec)).values():
        for piece in section:
            if isinstance(piece, Diagnostic) and piece.span not in places:
                yield piece


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """arguments.txt and pretrain.sh of a phase that passed its checks."""
    sections = pieces(phase, layout)
    told = [piece for section in sections.values() for piece in section]
    diagnostics = tuple(piece for piece in told if isinstance(piece, Diagnostic))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        return Emission({}, diagnostics)
    arguments = {
        title: [piece for piece in section if isinstance(piece, Argument)]
        for title, section in sections.items()
    }
    return Emission(files(phase, layout, arguments), diagnostics)
