"""DeepSpeed: its configuration, and a training script on `deepspeed.initialize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parlay.compiler.backends.complete import complete, missing
from parlay.compiler.backends.deepspeed import config, script
from parlay.compiler.backends.deepspeed.passed import passed
from parlay.compiler.backends.deepspeed.refusals import CODE, refusals_of
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.render import render
from parlay.compiler.backends.torch import dump
from parlay.compiler.backends.torch.refusals_data import without_data
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """Every field that asks for what DeepSpeed cannot express."""
    yield from (lacking := list(missing(phase, "deepspeed", CODE)))
    if complete(phase) and not lacking:
        yield from refusals_of(phase)
        yield from without_data(phase)


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """The folder of a phase that passed its checks."""
    told = tuple(refusals_of(phase))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in told):
        return Emission({}, told)
    structure = script.structure_of(phase, layout, sources)
    printed = script.context(structure)
    model = "torch/model.py.j2"
    if structure.pp:
        model = "deepspeed/model.py.j2"
    elif phase.spec.parallel.cp > 1:
        model = "deepspeed/ulysses.py.j2"
    files = {
        "ds_config.json": config.dump(config.document(passed(phase).entries)),
        "train.py": render("deepspeed/train.py.j2", printed),
        "model.py": render(model, printed),
        "plan.json": dump(script.plan(phase, layout)),
        "launch.sh": render("deepspeed/launch.sh.j2", printed),
        "hostfile": render("deepspeed/hostfile.j2", printed),
    }
    return Emission(files, told)
