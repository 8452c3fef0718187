"""The groups that an emitted mesh.py has to build, rank by rank, from the layout alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.communication_context import dealt

BETWEEN: Final = (2, 3, 7, 11)
"""Ranks at these parts of the world are looked at besides the corners."""


def planes(structure: Structure) -> tuple[tuple[str, ...], ...]:
    """The planes that emitted code sends over."""
    return tuple(tuple(name.split("_")) for name, _ in said(structure))


def said(structure: Structure) -> Iterator[tuple[str, str]]:
    """The names of the planes, and what they are for, as a comment."""
    if structure.owners == "tp_pp":
        yield "tp_pp", "all ranks of one replica: the norm of the gradients is summed over it."
    if structure.batch_axis == "dp_cp":
        yield "dp_cp", "the ranks that share a global batch and hold each weight alike."


def groups_of(structure: Structure, rank: int) -> dict[str, list[int]]:
    """The ranks that `rank` shares each group with, by the name that train.py uses."""
    layout = structure.layout
    names = [*structure.axes, *("_".join(plane) for plane in planes(structure))]
    found = {name: layout.group_of(name, rank) for name in names}
    of_experts = [axis for axis in structure.expert_axes if axis not in structure.axes]
    parts = {"edp": "expert_shard"} if structure.replicates else {}
    found |= {name: layout.group_of(parts.get(name, name), rank) for name in of_experts}
    if structure.replicates:
        found |= {name: layout.group_of(name, rank) for name in ("shard", "replicate")}
    if structure.kv:
        tp = layout.group_of("tp", rank)
        size = len(tp) // structure.model.kv_heads
        first = tp.index(rank) // size * size
        found["kv"] = tp[first : first + size]
    if structure.context == "ulysses_ring":
        cp, inner = layout.group_of("cp", rank), dealt(structure.parallel)
        first, place = cp.index(rank) // inner * inner, cp.index(rank) % inner
        found |= {"inner": cp[first : first + inner], "outer": cp[place::inner]}
    if structure.mirrored:
        pp = layout.group_of("pp", rank)
        found["mirror"] = sorted({rank, pp[-1 - pp.index(rank)]})
    if structure.tied_stages and not structure.adapted:
        found["embedding"] = layout.group_of("embedding", rank) or [rank]
    return found


def sampled(layout: Layout, axes: tuple[str, ...]) -> list[int]:
    """Every rank of a small world; of a large one its corners and a few between them."""
    world = layout.world
    if world <= 16:
        return list(range(world))
    ends = [[0, layout.size(axis) - 1] for axis in axes]
    corners = [
        layout.dense.rank_of(dict(zip(axes, corner, strict=True))) for corner in product(*ends)
    ]
    return sorted({*corners, *(world // part for part in BETWEEN), world - 1})
