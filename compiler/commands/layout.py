"""`parlay layout`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import print_json, show
from parlay.compiler.layout import Layout, to_json


def run(file: Path, *, rank: int | None, groups: bool, json: bool) -> int:
    """Prints the layout of every phase; needs the cluster and the degrees alone."""
    job = pipeline.load(file)
    layouts = [(phase, pipeline.lay_out(phase)) for phase in job.phases]
    if job.errors or any(layout is None for _, layout in layouts):
        show([pipeline.checked(job)], summary=True, stream=sys.stderr)
        return 1
    known = [(phase, layout) for phase, layout in layouts if layout is not None]
    if rank is not None and not any(0 <= rank < layout.world for _, layout in known):
        most = max(layout.world for _, layout in known)
        print(f"parlay: there is no rank {rank}: {most:,} ranks, counted from 0", file=sys.stderr)
        return 2
    documents = [
        to_json(layout, name=phase.name, groups=groups, rank=_in(layout, rank))
        for phase, layout in known
    ]
    if json:
        print_json({"version": 1, "phases": documents})
        return 0
    for (phase, layout), document in zip(known, documents, strict=True):
        _print(phase.name if len(known) > 1 else "", layout, document, groups=groups)
    return 0


def _in(layout: Layout, rank: int | None) -> int | None:
    """The rank, where this phase has so many."""
    return rank if rank is not None and 0 <= rank < layout.world else None


def _print(name: str, layout: Layout, document: dict[str, Any], *, groups: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if name:
        console.rule(name, align="left")
    console.print(f"{layout.world} ranks", style="bold")
    table = Table(box=None, header_style="bold")
    for title in ("group", "size", "groups", "nodes", "link"):
        table.add_column(title, justify="left" if title in ("group", "link") else "right")
    for kind, group in layout.kinds.items():
        if group.size > 1:
            reach = layout.reach(kind)
            count = layout.world // group.size if kind != "embedding" else len(group.all())
            table.add_row(kind, str(group.size), str(count), str(reach.nodes), reach.link)
    console.print(table)
    if document.get("stages"):
        stages = Table(box=None, header_style="bold")
        for title in ("stage", "chunk", "layers", "holds"):
            stages.add_column(title, justify="right" if title != "holds" else "left")
        for stage in layout.stages:
            ends = [
                word
                for word, held in (("embedding", stage.embedding), ("head", stage.head))
                if held
            ]
            span = f"{stage.first}-{stage.last}"
            stages.add_row(str(stage.stage), str(stage.chunk), span, ", ".join(ends))
        console.print(stages)
    if "rank" in document:
        for key, value in document["rank"].items():
            console.print(f"{key}: {value}", markup=False)
    if groups:
        for kind, members in document["groups"].items():
            console.print(kind, style="bold")
            for ranks in members:
                console.print("  " + " ".join(map(str, ranks)))
