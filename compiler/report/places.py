"""The map of the layout: which rank stands where, and the groups they form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from parlay.compiler.layout import Layout
from parlay.compiler.layout.describe import telling_kinds
from parlay.compiler.report.figure import Figure
from parlay.compiler.report.numbers import count, digits, runs
from parlay.compiler.report.part import Part

WHOLE: Final = 128
"""Ranks up to which all are drawn; beyond, one replica."""
CELLS: Final = 128
ACROSS: Final = 8
"""Ranks of a line, where nodes have fewer; a node of more has a line of its own, in pieces."""
WIDEST: Final = 16
COLOURS: Final = 8
LETTERS: Final = {"pp": "p", "tp": "t", "cp": "c", "dp": "d", "ep": "e"}
MEANT: Final = {
    "pp": "pipeline stage",
    "tp": "place in its tensor group",
    "cp": "place in its context group",
    "dp": "replica",
    "ep": "place in its expert group",
}
KINDS: Final = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "pp": "pipeline",
    "dp": "replicas",
    "dp_cp": "ZeRO group of dense parameters",
    "tp_cp": "one stage of one replica",
    "tp_pp": "one replica without cp",
    "model": "one replica",
    "shard": "shards of the states",
    "replicate": "copies of the shards",
    "ep": "expert parallel",
    "etp": "tensor parallel of the experts",
    "etp_ep": "all experts of a stage",
    "edp": "ZeRO group of the experts",
    "expert_shard": "shards of the experts' states",
    "expert_replicate": "copies of the experts' shards",
    "embedding": "first and last stage",
    "world": "all ranks",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank: `colour` follows its stage, `own` says that it belongs to the replica shown."""

    rank: int
    colour: int
    place: str
    own: bool
    begins: bool


@dataclass(frozen=True, slots=True)
class Line:
    """Ranks in one line of the map, of one node, of several, or of a part of one."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The groups of one kind."""

    kind: str
    means: str
    wire: str
    size: Figure | None
    count: Figure | None
    nodes: Figure | None
    per_nic: Figure | None


@dataclass(frozen=True, slots=True)
class PlacesSection:
    """`legend` are letters and what they stand for; `repeats` says what the map leaves out."""

    lines: tuple[Line, ...]
    whole: bool
    legend: tuple[tuple[str, str], ...]
    repeats: tuple[str, ...]
    groups: tuple[GroupRow, ...]
    stages: tuple[tuple[int, str, str], ...]


def places_section(part: Part) -> PlacesSection:
    """The whole world where it is small, else one replica and how it repeats."""
    layout = part.layout
    axes = [axis for axis in ("pp", "tp", "cp", "dp", "ep") if _size(layout, axis) > 1]
    whole = layout.world <= WHOLE
    lines, left_out = _lines(layout, axes, whole=whole)
    if not whole and all(cell.own for line in lines for cell in line.cells):
        axes = [axis for axis in axes if axis != "dp"]
        lines, left_out = _lines(layout, axes, whole=whole)
    repeats = [] if whole else [*_repeated(layout)]
    if left_out:
        repeats.append(f"{left_out:,} more nodes of it are left out.")
    if layout.placement.node > CELLS:
        repeats.append(f"Of a node's {layout.placement.node:,} ranks the first {CELLS} are shown.")
    return PlacesSection(
        tuple(lines),
        whole,
        tuple((LETTERS[axis], MEANT[axis]) for axis in axes),
        tuple(repeats),
        tuple(_groups(part)),
        tuple(_stages(layout)),
    )


def _size(layout: Layout, axis: str) -> int:
    if axis == "ep":
        return layout.size("ep") if "ep" in layout.kinds else 1
    return layout.dense.size(axis)


# ── The map ───────────────────────────────────────────────────────────────────


def _lines(layout: Layout, axes: Sequence[str], *, whole: bool) -> tuple[list[Line], int]:
    """The lines of the map, and how many nodes of the replica found no room."""
    node = layout.placement.node
    own = range(layout.world) if whole else layout.group_of("model", 0)
    nodes = sorted({layout.node_of(rank) for rank in own})
    room = max(1, CELLS // node)
    shown, left_out = nodes[:room], max(0, len(nodes) - room)
    found: list[Line] = []
    if node <= ACROSS // 2:
        beside = ACROSS // node
        pieces = [shown[at : at + beside] for at in range(0, len(shown), beside)]
        for piece in pieces:
            ranks = [rank for each in piece for rank in range(each * node, (each + 1) * node)]
            words = f"node{'s' if len(piece) > 1 else ''} {runs(piece)}"
            found.append(Line(words, _cells(layout, axes, ranks, own)))
        return found, left_out
    for each in shown:
        ranks = list(range(each * node, (each + 1) * node))
        for at in range(0, min(node, CELLS), WIDEST):
            name = f"from GPU {at}" if at else f"node {each}"
            found.append(Line(name, _cells(layout, axes, ranks[at : at + WIDEST], own)))
    return found, left_out


def _cells(
    layout: Layout, axes: Sequence[str], ranks: Sequence[int], own: Sequence[int]
) -> tuple[Cell, ...]:
    mine = own if isinstance(own, range) else frozenset(own)
    found = []
    for rank in ranks:
        at = layout.coordinates(rank)
        place = " ".join(f"{LETTERS[axis]}{at[axis]}" for axis in axes)
        begins = rank % layout.placement.node == 0
        found.append(Cell(rank, at["pp"] % COLOURS, place, rank in mine, begins))
    return tuple(found)


def _repeated(layout: Layout) -> Iterator[str]:
    """How the other replicas follow from the one that is shown."""
    replicas, step = layout.dense.size("dp"), layout.dense.stride("dp")
    ranks = layout.world // replicas
    if replicas == 1:
        yield f"There is one replica, of {ranks:,} ranks."
        return
    yield (
        f"Shown is replica 0, {ranks:,} ranks, of {replicas:,} with the same model. Replica d "
        f"has the same places {step:,}·d ranks further on."
    )
    node = layout.placement.node
    if step % node == 0:
        yield f"That is {step // node:,}·d nodes: every replica's ranks stand in nodes alike."
    elif step < node:
        yield "Replicas share nodes: paler ranks belong to others."


def _stages(layout: Layout) -> Iterator[tuple[int, str, str]]:
    """Each pipeline rank with its layers and what else it holds."""
    for rank in range(layout.dense.size("pp")):
        held = [stage for stage in layout.stages if stage.stage == rank]
        if held:
            layers = ", ".join(f"{stage.first}-{stage.last}" for stage in held)
            ends = {
                "embedding": any(stage.embedding for stage in held),
                "head": any(stage.head for stage in held),
            }
            yield rank, layers, ", ".join(word for word, there in ends.items() if there)


# ── Groups ────────────────────────────────────────────────────────────────────


def _groups(part: Part) -> Iterator[GroupRow]:
    cluster, model = part.phase.spec.cluster, part.phase.spec.model
    assert cluster is not None
    wires = {
        "link": cluster.node.link.kind if cluster.node.link else "link",
        "fabric": cluster.fabric.kind if cluster.fabric else "fabric",
    }
    experts = model is None or model.experts is not None
    for kind in telling_kinds(part.layout, experts=experts):
        reach = part.layout.reach(kind)
        if reach.size == 1:
            continue
        at = f"reach.{kind}"
        yield GroupRow(
            kind,
            KINDS.get(kind, ""),
            wires.get(reach.link, reach.link),
            part.groups.figure(f"{at}.size", count),
            part.groups.figure(f"{at}.count", count),
            part.groups.figure(f"{at}.nodes", count),
            part.groups.figure(f"{at}.groups_per_nic", digits) if reach.groups_per_nic else None,
        )
