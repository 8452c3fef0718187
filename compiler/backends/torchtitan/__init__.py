"""A configuration for torchtitan: a Python function that returns its `Trainer.Config`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parlay.compiler.backends.complete import complete, missing
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.rules import found
from parlay.compiler.backends.torchtitan.config import config
from parlay.compiler.backends.torchtitan.refusals import CODE, refusals_of
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """Every field that asks for what torchtitan cannot express.

    Where a rule of its own has told a place already, nothing else is told there.
    """
    told = list(found("torchtitan", phase))
    yield from told
    yield from (lacking := list(missing(phase, "torchtitan", CODE)))
    if lacking or not complete(phase):
        return
    places = {diagnostic.span for diagnostic in told}
    for refused in refusals_of(phase, lay_out(phase.spec)):
        if refused.span not in places:
            yield refused


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """parlay_config.py of a phase that passed its checks."""
    told = tuple(refusals_of(phase, layout))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in told):
        return Emission({}, told)
    return Emission({"parlay_config.py": config(phase, layout)}, told)
