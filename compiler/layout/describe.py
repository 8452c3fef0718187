"""A layout as plain JSON values, for `parlay layout --json`, and which of its groups people see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from parlay.compiler.layout.layout import Layout
from parlay.compiler.layout.stages import Stage
from parlay.runtime.axes import Grid


def to_json(
    layout: Layout, *, name: str = "main", groups: bool = False, rank: int | None = None
) -> dict[str, Any]:
    """One phase of the document: axes, reach of every kind of group, stages.

    `groups` adds every group's ranks, `rank` adds where that rank stands and with whom.
    """
    document: dict[str, Any] = {
        "name": name,
        "world": layout.world,
        "axes": _axes(layout.dense),
        "expert_axes": _axes(layout.expert) if layout.expert is not None else [],
        "reach": {kind: asdict(layout.reach(kind)) for kind in layout.kinds},
        "stages": [_stage(stage) for stage in layout.stages],
    }
    if groups:
        document["groups"] = {kind: layout.groups(kind) for kind in layout.kinds}
    if rank is not None:
        document["rank"] = {
            "rank": rank,
            "node": layout.node_of(rank),
            "domain": layout.domain_of(rank),
            "coordinates": layout.coordinates(rank),
            "peers": layout.peers(rank),
            "stages": [_stage(stage) for stage in layout.stages_of(rank)],
        }
    return document


def telling_kinds(layout: Layout, *, experts: bool) -> Iterator[str]:
    """The kinds of groups that say something new.

    None of experts where the model has none, and of two kinds with the same groups the first.
    """
    seen = set()
    for kind, group in layout.kinds.items():
        if not experts and group.grid in (layout.expert, layout.sharded_expert):
            continue
        lines = ((group.grid.size(axis), group.grid.stride(axis)) for axis in group.axes)
        same = (group.ends, *sorted(line for line in lines if line[0] > 1))
        if same not in seen:
            seen.add(same)
            yield kind


def _axes(grid: Grid) -> list[dict[str, Any]]:
    return [{"name": name, "size": size, "stride": grid.stride(name)} for name, size in grid.sizes]


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "chunk": stage.chunk,
        "layers": [stage.first, stage.last],
        "embedding": stage.embedding,
        "head": stage.head,
    }
