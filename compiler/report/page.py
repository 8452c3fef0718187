"""One self-contained page of a job: what it says, section by section, and the template it fills."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from parlay.compiler.report.drawing import Drawing, px
from parlay.compiler.report.figure import Figure
from parlay.compiler.report.key import Card, cards
from parlay.compiler.report.memory import LETTER, MemorySection, memory_section
from parlay.compiler.report.numbers import count, short
from parlay.compiler.report.part import Part, Subject
from parlay.compiler.report.places import PlacesSection, places_section
from parlay.compiler.report.plan import plan_sections
from parlay.compiler.report.scaling import ScalingTable, scaling_section
from parlay.compiler.report.sources import preset_of, sources
from parlay.compiler.report.text import shown
from parlay.compiler.report.timeline import TimelineSection, timeline_section
from parlay.compiler.report.told import Claim, claims, verdict
from parlay.compiler.report.traffic import TrafficSection, traffic_section
from parlay.compiler.report.waterfall import WaterfallSection, waterfall_section
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.diagnostics.places import well_formed

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True)
class Section:
    """One phase on the page."""

    number: int
    name: str
    model: str
    cluster: str
    world: Figure | None
    parameters: Figure | None
    active: Figure | None
    degrees: tuple[tuple[str, int], ...]
    cards: tuple[Card, ...]
    claims: tuple[Claim, ...]
    memory: MemorySection
    places: PlacesSection
    timeline: TimelineSection | None
    waterfall: WaterfallSection | None
    traffic: TrafficSection
    scaling: tuple[ScalingTable, ...]


def page(subject: Subject) -> str:
    """The page as HTML, the same bytes for the same job; nothing in it is fetched from anywhere.

    What is wrong with a job comes first.
    """
    environment = _environment()
    script = environment.get_template("script.js.j2").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html.j2").render(
        title=PurePath(subject.path).name,
        path=subject.path,
        verdict=verdict(subject),
        sections=[_section(number, part) for number, part in enumerate(subject.parts)],
        texts=[shown(source, number) for number, source in enumerate(subject.sources.values())],
        plans=plan_sections(subject.plans),
        letters=LETTER,
        sources=sources(subject),
        digest=digest,
    )


def picture(drawing: Drawing) -> str:
    """One drawing as an SVG file of its own, in the colours of the page."""
    return _environment().get_template("picture.svg.j2").render(d=drawing)


def _section(number: int, part: Part) -> Section:
    figures = part.ledger
    total, active = figures.at("parameters.total"), figures.at("parameters.active")
    return Section(
        number,
        part.phase.name,
        _model(part),
        _cluster(part),
        figures.figure("world", count),
        figures.figure("parameters.total", short),
        figures.figure("parameters.active", short) if active != total else None,
        tuple(_degrees(part)),
        cards(part),
        claims(part),
        memory_section(part),
        places_section(part),
        timeline_section(part),
        waterfall_section(part),
        traffic_section(part),
        scaling_section(part),
    )


def _model(part: Part) -> str:
    return part.phase.model_name or preset_of(part, "model") or "a model of its own"


def _cluster(part: Part) -> str:
    cluster = part.phase.spec.cluster
    assert cluster is not None
    node = preset_of(part, "cluster.node") or f"{cluster.node.gpus} GPUs"
    return f"{cluster.nodes:,} × {node}"


def _degrees(part: Part) -> Iterator[tuple[str, int]]:
    parallel = part.phase.spec.parallel
    for name in ("tp", "cp", "pp", "dp", "ep", "etp"):
        size = getattr(parallel, name, 1)
        if isinstance(size, int) and size > 1:
            yield name, size


def _final(value: Any) -> Any:
    """Values on their way into the page: a text keeps no character that could hide or reorder."""
    if type(value) is str:
        return harmless(well_formed(value))
    return value


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("parlay.templates", "report"),
        undefined=StrictUndefined,
        finalize=_final,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["px"] = px
    return made
