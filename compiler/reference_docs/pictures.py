"""Pictures of the README: drawings of the report, of an example."""

from __future__ import annotations

from pathlib import Path

from parlay.compiler import pipeline
from parlay.compiler.report import picture
from parlay.compiler.report.timeline import drawn


def pipeline_picture(examples: Path) -> str:
    """A step of Llama 3.1 405B over sixteen pipeline ranks."""
    (phase,) = pipeline.check(examples / "llama-405b" / "llama-405b.par").phases
    layout = pipeline.lay_out(phase)
    assert layout is not None
    return picture(drawn(phase.spec, layout)[0])
