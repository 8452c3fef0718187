"""DeepSpeed: its rules; emission is not there yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parlay.compiler.backends import not_yet
from parlay.compiler.backends.emission import Emission
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Source


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """No files: refused."""
    return not_yet.refused("deepspeed", phase)


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """Nothing beside its rules."""
    yield from ()
