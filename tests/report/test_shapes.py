"""The drawings: as long as what they stand for, inside their frame, no words over others."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from parlay.compiler import pipeline
from parlay.compiler.ledger.time.trace import actions

from .commands import ROOT, documents, page_of
from .reading import Element, rounds_to

EXAMPLES = ROOT / "examples"
STROKE = re.compile(r"([Mm])(-?[\d.]+) (-?[\d.]+)h(-?[\d.]+)")


class Place(NamedTuple):
    """A rectangle."""

    left: float
    top: float
    right: float
    foot: float

    def meets(self, other: Place) -> bool:
        return (
            min(self.right, other.right) - max(self.left, other.left) > 0.5
            and min(self.foot, other.foot) - max(self.top, other.top) > 0.5
        )


def frame(svg: Element) -> Place:
    left, top, width, height = map(float, svg.attributes["viewbox"].split())
    return Place(left, top, left + width, top + height)


def place_of(words: Element) -> Place:
    """Where a text stands: 0.6 of its height a character, as DejaVu Sans has it."""
    size = 9.0 if "small" in words.classes else 12.0
    wide = 0.6 * size * len(words.text)
    x, y = float(words.attributes["x"]), float(words.attributes["y"])
    left = x - wide * (0.5 if "middle" in words.classes else "end" in words.classes)
    return Place(left, y - 0.8 * size, left + wide, y + 0.2 * size)


def box_of(box: Element) -> Place:
    x, y, width, height = (float(box.attributes[n]) for n in ("x", "y", "width", "height"))
    return Place(x, y, x + width, y + height)


def strokes(path: str) -> list[tuple[float, float, float]]:
    """The blocks of a path: left, right and middle line."""
    found, x, y = [], 0.0, 0.0
    assert "".join("".join(m.group()) for m in STROKE.finditer(path)) == path
    for letter, dx, dy, wide in STROKE.findall(path):
        x, y = (x + float(dx), y + float(dy)) if letter == "m" else (float(dx), float(dy))
        found.append((x, x + float(wide), y))
        x += float(wide)
    return found


JOBS = {
    "llama-70b-64gpu/llama-70b": "8",
    "deepseek-v3/deepseek-v3": "256",
    "sc21-gpt-1t/sc21-gpt-1t": "384",
    "llama3-8b-fsdp/llama3-8b-fsdp": "1",
    "tiny/tiny": "1",
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if "llama-70b" in n else [pytest.mark.slow]) for n in JOBS]
)
def test_drawings(name: str) -> None:
    path = EXAMPLES / f"{name}.par"
    page, nodes = page_of(path, "--nodes", JOBS[name]), JOBS[name]
    known = documents(path, nodes)["ledger"][0]
    drawings = list(page.all("svg"))
    assert drawings
    for svg in drawings:
        inside(svg)
    memory(page.one("svg", class_="memory"), known)
    for svg in page.having("svg", class_="waterfall"):
        waterfall(svg, known)
    for svg in page.having("svg", class_="timeline"):
        timeline(svg, path)
    assert bool(page.having("svg", class_="waterfall")) == bool(known["time"]["step_seconds"])


def inside(svg: Element) -> None:
    whole = frame(svg)
    texts = [place_of(each) for each in svg.all("text")]
    boxes = [box_of(each) for each in svg.all("rect")]
    for each in (*texts, *boxes):
        assert whole.left <= each.left and each.right <= whole.right + 0.1, each
        assert whole.top <= each.top and each.foot <= whole.foot + 0.1, each
    texts.sort()
    for one, other in combinations(texts, 2):
        assert not one.meets(other), (one, other)
    for each in svg.all("path"):
        for left, right, y in strokes(each.attributes["d"]):
            assert whole.left <= left < right <= whole.right + 0.2
            assert whole.top <= y - 8 and y + 8 <= whole.foot


def memory(svg: Element, known: dict) -> None:  # type: ignore[type-arg]
    """Bars one after the other, in proportion; words on a bar are inside it."""
    limit = float(svg.one("line", class_="limit").attributes["x1"])
    rows: dict[float, list[Element]] = {}
    for box in svg.all("rect"):
        rows.setdefault(box_of(box).top, []).append(box)
    classes = known["memory"]["rank_classes"]
    assert len(rows) == len(classes)
    left = min(box_of(box).left for box in svg.all("rect"))
    scale = (limit - left) / known["memory"]["budget_bytes"]
    for (top, boxes), held in zip(sorted(rows.items()), classes, strict=True):
        at = left
        sizes = {name: size for name, size in held["categories"].items() if size}
        assert [box.classes for box in boxes] == [[f"c-{name}"] for name in sizes]
        for box, size in zip(boxes, sizes.values(), strict=True):
            place = box_of(box)
            assert place.left == pytest.approx(at, abs=0.11)
            assert place.right - place.left == pytest.approx(size * scale, abs=0.11)
            at += size * scale
        (words,) = [
            t for t in svg.all("text") if " at " in t.text and abs(place_of(t).top - top) < 9
        ]
        shown, _, moment = words.text.partition(" at ")
        assert moment == held["moment"]
        assert rounds_to(shown, held["peak_bytes"])
    for text in svg.having("text", class_="on"):
        middle = (place_of(text).left + place_of(text).right) / 2
        foot = place_of(text).foot
        (box,) = [
            b
            for b in map(box_of, svg.all("rect"))
            if b.left < middle < b.right and b.top < foot < b.foot + 2
        ]
        assert box.left - 0.5 <= place_of(text).left and place_of(text).right <= box.right + 0.5


def waterfall(svg: Element, known: dict) -> None:  # type: ignore[type-arg]
    """Each bar begins where the one above ends; together they are the step."""
    boxes = [box_of(each) for each in svg.all("rect")]
    *parts, step = boxes
    shares = known["time"]["shares"]
    assert len(parts) == len(shares)
    for above, below in pairwise(parts):
        assert below.left == pytest.approx(above.right, abs=0.21)
        assert below.top > above.foot
    assert parts[0].left == step.left
    assert parts[-1].right == pytest.approx(step.right, abs=0.21)
    scale = (step.right - step.left) / known["time"]["step_seconds"]
    lengths = sorted(part.right - part.left for part in parts)
    for found, seconds in zip(lengths, sorted(shares.values()), strict=True):
        assert found == pytest.approx(seconds * scale, abs=0.11)
    told = [each.text.partition(",")[0] for each in svg.all("text") if ", " in each.text]
    left = sorted(shares.values())
    for shown in told:
        left.remove(next(seconds for seconds in left if rounds_to(shown, seconds)))
    assert left == []


def timeline(svg: Element, path: Path) -> None:
    """As many blocks as the action list of the shown microbatches, none over another."""
    (phase,) = pipeline.load(path).phases
    parallel = phase.spec.parallel
    kinds = {"a-forward": "F", "a-backward": "B", "a-input": "I", "a-weight": "W"}
    rows: dict[float, list[tuple[float, float, str]]] = {}
    for each in svg.all("path"):
        kind = kinds.get(each.classes[0], "")
        for left, right, y in strokes(each.attributes["d"]):
            rows.setdefault(round(y, 1), []).append((left, right, kind))
    names = [each.text for each in svg.all("text") if each.text.startswith("rank ")]
    assert len(rows) == len(names) <= 16
    ranks = [int(name.removeprefix("rank ")) for name in names]
    assert {0, parallel.pp - 1} <= set(ranks)
    first = rows[min(rows)]
    counts = {kind: sum(k == kind for *_, k in first) for kind in kinds.values()}
    assert svg.parent is not None and svg.parent.parent is not None
    late = "The end of the step is left out" in svg.parent.parent.text
    if not late:
        shown = counts["F"] // len(phase_chunks(path))
        line = actions(parallel, shown)
        for rank, (_, blocks) in zip(ranks, sorted(rows.items()), strict=True):
            blocks.sort()
            drawn = [kind for *_, kind in blocks if kind]
            assert drawn == [action.kind for action in line.actions[rank]]
    for blocks in rows.values():
        blocks.sort()
        for one, other in pairwise(blocks):
            assert one[1] <= other[0] + 0.11, (one, other)


def phase_chunks(path: Path) -> list[int]:
    (phase,) = pipeline.load(path).phases
    layout = pipeline.lay_out(phase)
    assert layout is not None
    return [stage.chunk for stage in layout.stages if stage.stage == 0]


# ── The map ───────────────────────────────────────────────────────────────────


def test_the_map_is_the_layout() -> None:
    path = EXAMPLES / "llama-70b-64gpu" / "llama-70b.par"
    (phase,) = pipeline.load(path).phases
    layout = pipeline.lay_out(phase)
    assert layout is not None
    cells = page_of(path, "--nodes", "8").one("table", class_="map").having("td")
    assert [int(cell.one("b").text) for cell in cells] == list(range(64))
    for rank, cell in enumerate(cells):
        at = layout.coordinates(rank)
        assert cell.text == f"{rank}p{at['pp']} t{at['tp']} d{at['dp']}"
        assert f"p{at['pp'] % 8}" in cell.classes
        assert ("new" in cell.classes) == (rank % 8 == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "alone"), [("tp, cp, dp, pp", False), ("tp, cp, pp, dp", True)])
def test_of_a_large_world_one_replica(tmp_path: Path, order: str, alone: bool) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model from "llama3-70b"\ncluster { nodes = 2048, node from "dgx-h100" }\n'
        f"parallel {{ tp = 4, pp = 8, dp = auto, order = [{order}] }}\n"
        "train { seq = 8Ki, micro_batch = 1, global_batch = 2048, tokens = 1T, recompute = full }\n"
    )
    (phase,) = pipeline.load(path).phases
    layout = pipeline.lay_out(phase)
    assert layout is not None
    page = page_of(path)
    cells = page.one("table", class_="map").having("td")
    own = {int(cell.one("b").text) for cell in cells if "far" not in cell.classes}
    assert (len(own) == len(cells)) is alone
    assert own == {rank for rank in range(16384) if layout.coordinates(rank)["dp"] == 0}
    step = layout.dense.stride("dp")
    assert f"{step:,}·d ranks further on" in page.text
    for rank in own:
        moved = layout.coordinates(rank + 3 * step)
        assert moved == layout.coordinates(rank) | {"dp": 3} | {
            axis: moved[axis] for axis in ("ep", "etp", "edp") if axis in moved
        }


def test_bars_beyond_the_budget_stay_in_the_drawing(tmp_path: Path) -> None:
    path = tmp_path / "full.par"
    text = (EXAMPLES / "llama-70b-64gpu" / "llama-70b.par").read_text()
    path.write_text(text + "\nbudget { memory = 10% }\n")
    page, known = page_of(path, status=1), documents(path, "8")["ledger"][0]
    svg = page.one("svg", class_="memory")
    inside(svg)
    memory(svg, known)
    boxes = [box_of(box).right for box in svg.all("rect")]
    assert max(boxes) > 2 * float(svg.one("line", class_="limit").attributes["x1"])
