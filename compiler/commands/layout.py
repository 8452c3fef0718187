"""`parlay layout`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import failed, incomplete, print_json
from parlay.compiler.commands.tables import WIDTH
from parlay.compiler.layout import Layout, Stage, to_json
from parlay.compiler.layout.describe import telling_kinds
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics.cells import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def run(file: Path, *, rank: int | None, groups: bool, json: bool) -> int:
    """Prints the layout of every phase; needs the cluster and the degrees alone."""
    job = pipeline.load(file)
    layouts = [(phase, pipeline.lay_out(phase)) for phase in job.phases]
    if job.errors or any(layout is None for _, layout in layouts):
        return incomplete(job, "a layout needs a cluster and every degree", json=json)
    known = [(phase, layout) for phase, layout in layouts if layout is not None]
    if rank is not None and not any(0 <= rank < layout.world for _, layout in known):
        most = max(layout.world for _, layout in known)
        words = f"there is no rank {rank}: {most:,} ranks, counted from 0"
        print(f"parlay: {words}", file=sys.stderr)
        return failed(job, words=words, json=json, status=2)
    if json:
        documents = [
            to_json(layout, name=phase.name, groups=groups, rank=_in(layout, rank))
            for phase, layout in known
        ]
        print_json({"version": 1, "phases": documents})
        return 0
    for phase, layout in known:
        _print(phase, layout, named=len(known) > 1, rank=_in(layout, rank), groups=groups)
    return 0


def _in(layout: Layout, rank: int | None) -> int | None:
    """The rank, where this phase has so many."""
    return rank if rank is not None and 0 <= rank < layout.world else None


# ── For people ────────────────────────────────────────────────────────────────


def _print(phase: Phase, layout: Layout, *, named: bool, rank: int | None, groups: bool) -> None:
    # A narrower screen breaks lines; names and counts that are cut would read like others.
    console = new_console(least=WIDTH, markup=False, soft_wrap=True)
    if named:
        console.print(f'phase "{harmless(phase.name)}"', style="bold")
    experts = phase.spec.model is None or phase.spec.model.experts is not None
    told = telling_kinds(layout, experts=experts)
    kinds = [kind for kind in told if layout.size(kind) > 1]
    if rank is None:
        _print_groups(console, phase, layout, kinds)
        _print_stages(console, layout)
    else:
        _print_rank(console, layout, kinds, rank)
    for kind in kinds if groups else ():
        console.print(kind, style="bold")
        for ranks in layout.groups(kind):
            console.print("  " + " ".join(map(str, ranks)))


def _print_groups(console: Console, phase: Phase, layout: Layout, kinds: Sequence[str]) -> None:
    cluster = phase.spec.cluster
    assert cluster is not None, "a layout needs a cluster"
    link = cluster.node.link.kind if cluster.node.link else "link"
    wires = {"link": link, "fabric": cluster.fabric.kind if cluster.fabric else "fabric"}
    table = _table("group", "size", "groups", "nodes", "over")
    for kind in kinds:
        reach = layout.reach(kind)
        numbers = (reach.size, reach.count, reach.nodes)
        table.add_row(kind, *map(str, numbers), wires.get(reach.link, reach.link))
    ranks = f"{layout.world:,} ranks" if layout.world > 1 else "1 rank"
    console.print(ranks, style="bold")
    if kinds:
        console.print(table)


def _print_stages(console: Console, layout: Layout) -> None:
    if not layout.stages:
        return
    table = _table("stage", "chunk", "layers", "holds")
    for stage in layout.stages:
        ends = {"embedding": stage.embedding, "head": stage.head}
        holds = ", ".join(word for word, held in ends.items() if held)
        table.add_row(str(stage.stage), str(stage.chunk), _layers(stage), holds)
    console.print(table)


def _print_rank(console: Console, layout: Layout, kinds: Sequence[str], rank: int) -> None:
    where = f"node {layout.node_of(rank)}, fast domain {layout.domain_of(rank)}"
    console.print(f"rank {rank}: {where}", style="bold")
    table = _table("group", "place", "ranks")
    at, peers = layout.coordinates(rank), layout.peers(rank)
    for kind in kinds:
        if kind in peers:
            place = f"{at[kind]} of {layout.size(kind)}" if kind in at else ""
            table.add_row(kind, place, _ranges(peers[kind]))
    console.print(table)
    for stage in layout.stages_of(rank):
        console.print(f"stage {stage.stage}, chunk {stage.chunk}: layers {_layers(stage)}")


def _table(*titles: str) -> Table:
    """A table whose first and last columns are words, the others numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        words = title in ("group", "over", "holds", "place", "ranks")
        table.add_column(title, justify="left" if words else "right", no_wrap=True)
    return table


def _layers(stage: Stage) -> str:
    return f"{stage.first}-{stage.last}"


def _ranges(ranks: Sequence[int]) -> str:
    """`0-7 16-23`; what is longer than eight runs is cut in its middle."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs]
    if len(shown) > 8:
        shown = [*shown[:4], "…", shown[-1], f"({len(ranks)} ranks)"]
    return " ".join(shown)
