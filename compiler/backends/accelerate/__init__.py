"""Accelerate: machines, sharding and precision for a training script that is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version as version_of_package

from parlay.compiler.backends.accelerate.options import NEWEST
from parlay.compiler.backends.accelerate.refusals import CODE, refusals_of
from parlay.compiler.backends.accelerate.script import left_to_the_script
from parlay.compiler.backends.accelerate.settings import configuration
from parlay.compiler.backends.complete import complete, missing
from parlay.compiler.backends.emission import Emission
from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.yaml_text import document
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.source import Source

__all__ = ["emit", "refusals"]


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """Every field that asks for what Accelerate cannot express; what is left to the script."""
    yield from (lacking := list(missing(phase, "accelerate", CODE, shape=False)))
    if complete(phase) and not lacking:
        yield from refusals_of(phase, lay_out(phase.spec))


def emit(phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Emission:
    """accelerate.yaml of a phase that passed its checks."""
    told = tuple(refusals_of(phase, layout))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in told):
        return Emission({}, told)
    return Emission({"accelerate.yaml": _header(phase, layout) + _sections(phase, layout)}, told)


def _sections(phase: Phase, layout: Layout) -> str:
    return document(configuration(phase, layout))


def _header(phase: Phase, layout: Layout) -> str:
    cluster = phase.spec.cluster
    assert cluster is not None
    ranks = f"{layout.world} rank{'s' * (layout.world > 1)}"
    machines = f"{cluster.nodes} node{'s' * (cluster.nodes > 1)}"
    lines = [
        f"{file_name(phase.origins)} for Accelerate {NEWEST}, by Parlay "
        f"{version_of_package('parlay')}: {ranks} on {machines}.",
        "accelerate launch --config_file accelerate.yaml train.py",
    ]
    if cluster.nodes > 1:
        lines[1] = (
            'accelerate launch --config_file accelerate.yaml --main_process_ip "$MASTER_ADDR" '
            "train.py"
        )
        lines.append("on every node, with MASTER_ADDR the first of them.")
    lines += ["", "The script carries the rest:"]
    lines += [f"  {line}" for line in left_to_the_script(phase, layout)]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"
