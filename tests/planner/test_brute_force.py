"""The planner against every layout written into the text, checked and accounted one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.checks import subject_of
from parlay.compiler.ledger.document import ledger
from parlay.compiler.planner import Plan, plan, spelling
from parlay.compiler.planner.best import Best
from parlay.compiler.planner.search import Search, may_scatter
from parlay.compiler.planner.sets import Bound, Core, Cut, Grid, Place, Way, Work
from parlay.compiler.planner.space import fields, leaves
from parlay.dsl.diagnostics import Severity

SMALL = 'model from "llama3-8b" {{ layers = 8 }}\n'
MIXED = (
    "model { layers = 4  hidden = 1024  heads = 16  kv_heads = 4  ffn = 2048  vocab = 32000\n"
    "  experts { count = 8  top_k = 2  ffn = 1024 } }\n"
)
FILES = {
    "dense": (
        'model from "llama3-8b" { layers = 8 }\n'
        'cluster { nodes = 1  node from "dgx-h100" }\n'
        "parallel { tp = %tp  pp = %pp  zero = %zero }\n"
        "train { seq = 4096  micro_batch = %micro_batch  global_batch = 32  steps = 1\n"
        "  recompute = %recompute }\n",
        {
            "tp": ("1", "2", "16"),
            "pp": ("1", "2", "8"),
            "zero": ("0", "1", "3"),
            "micro_batch": ("1", "2", "8"),
            "recompute": ("none", "selective(mlp)", "full"),
        },
    ),
    "tight": (
        'model from "llama3-8b"\n'
        'cluster { nodes = 2  node from "dgx-h100" }\n'
        "budget { memory = 60% }\n"
        "parallel { tp = %tp  pp = %pp  schedule = %schedule  zero = 1 }\n"
        "train { seq = 8192  micro_batch = 1  global_batch = 32  steps = 1\n"
        "  recompute = %recompute }\n",
        {
            "tp": ("2", "8"),
            "pp": ("1", "2"),
            "schedule": (
                *("one_f_one_b", "gpipe", "zero_bubble", "zbv", "dualpipe_v"),
                *(f"interleaved(chunks = {v})" for v in range(2, 9)),
            ),
            "recompute": ("none", "selective(mlp)", "full"),
        },
    ),
    "experts": (
        MIXED + 'cluster { nodes = 2  node from "dgx-h100" { gpus = 4 } }\n'
        "parallel { tp = %tp  pp = 1  ep = %ep  zero = %zero }\n"
        "train { seq = 2048  micro_batch = %micro_batch  global_batch = 16  steps = 1 }\n",
        {
            "tp": ("1", "2", "4"),
            "ep": ("1", "2", "4", "8"),
            "zero": ("0", "1"),
            "micro_batch": ("1", "2"),
        },
    ),
    "cut": (
        'model from "deepseek-v2-lite"\ncluster { nodes = 2  node from "h800-8" }\n'
        "parallel { tp = 4  cp = %cp  ep = 8  stages = auto  zero = %zero  shard = %shard }\n"
        "train { seq = 4096  micro_batch = %micro_batch  global_batch = 256  steps = 1\n"
        "  recompute = full }\n",
        {
            "cp": ("1", "2"),
            "zero": ("1", "2", "3"),
            "shard": ("1", "2", "4"),
            "micro_batch": ("1", "4"),
        },
    ),
    "long": (
        'model from "llama3-8b" { layers = 2 }\n'
        'cluster { nodes = 1  node from "dgx-h100" { gpus = 4 } }\n'
        "parallel { tp = 1  cp = %cp  cp_method = %cp_method  shard = %shard  zero = 3 }\n"
        "train { seq = 32768  micro_batch = 1  global_batch = 4  steps = 1 }\n",
        {
            "cp": ("1", "2", "4"),
            "cp_method": ("ring", "allgather", "ulysses"),
            "shard": ("1", "2", "4"),
        },
    ),
}


WIDE = {
    "dense": (
        'model from "llama3-8b"\ncluster { nodes = 2  node from "dgx-h100" }\n'
        "parallel { tp = auto  pp = auto <= 8  cp = auto <= 4  cp_method = auto  zero = auto\n"
        "  shard = auto  order = auto  schedule = auto }\n"
        "train { seq = 8192  micro_batch = auto  global_batch = 96  steps = 1\n"
        "  recompute = auto }\n",
        30,
    ),
    "experts": (
        'model from "deepseek-v2-lite"\ncluster { nodes = 2  node from "h800-8" }\n'
        "parallel { tp = auto <= 4  pp = auto <= 8  cp = auto <= 4  cp_method = auto  ep = auto\n"
        "  etp = auto  zero = auto  shard = auto  order = auto  schedule = auto  stages = auto }\n"
        "train { seq = 4096  micro_batch = auto <= 16  global_batch = 384  steps = 1\n"
        "  recompute = auto }\n",
        40,
    ),
    "adapters": (
        'model from "llama3-8b"\ncluster { nodes = 1  node from "dgx-h100" }\n'
        "parallel { tp = auto  pp = auto  zero = auto  schedule = auto }\n"
        "train { seq = 8192  micro_batch = auto <= 4  global_batch = 64  steps = 1\n"
        "  recompute = auto  lora = lora(rank = 4) }\n",
        25,
    ),
    "dualpipe": (
        'model from "llama3-70b"\ncluster { nodes = 4  node from "dgx-a100" }\n'
        "parallel { tp = auto  pp = auto  zero = auto <= 1  schedule = dualpipe_v }\n"
        "train { seq = 4096  micro_batch = auto <= 4  global_batch = 512  steps = 1\n"
        "  attention = math  recompute = auto }\n",
        15,
    ),
}


LEFT = ("dense", "tight", "long")


@dataclass(frozen=True)
class Found:
    chosen: dict[str, str]
    seconds: float
    peak: int


def written(text: str, values: dict[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):
        text = text.replace(f"%{name}", values[name])
    return text


def open_file(name: str, tmp_path: Path) -> pipeline.Job:
    text, choices = FILES[name]
    lists = {
        field: f"auto in [{', '.join(values)}]" if name_is_number(values) else "auto"
        for field, values in choices.items()
    }
    path = tmp_path / f"{name}.par"
    path.write_text(written(text, lists))
    return pipeline.checked(pipeline.load(path))


def name_is_number(values: tuple[str, ...]) -> bool:
    return all(value.isdecimal() for value in values)


def brute(name: str, tmp_path: Path) -> Iterator[Found]:
    """Every combination that is legal and fits; what repeats another layout is left out."""
    text, choices = FILES[name]
    path = tmp_path / "one.par"
    path.write_text("")
    for values in product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        if chosen.get("pp") == "1" and chosen.get("schedule", "one_f_one_b") != "one_f_one_b":
            continue
        if chosen.get("cp") == "1" and chosen.get("cp_method", "ring") != "ring":
            continue
        job = pipeline.check(path, (), {path: written(text, chosen)})
        if any(each.severity is Severity.ERROR for each in job.diagnostics):
            continue
        (phase,) = job.phases
        layout = pipeline.lay_out(phase)
        assert layout is not None
        book = ledger(phase, layout)
        assert book.time is not None
        peak = book.memory.worst.peak_bytes
        if peak <= book.memory.budget_bytes:
            yield Found(chosen, book.time.step_seconds, peak)


def named(chosen: Any) -> dict[str, str]:
    return {path.rpartition(".")[2]: spelling(value) for path, value in chosen.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_best_front_and_each_value_are_those_of_brute_force(name: str, tmp_path: Path) -> None:
    job = open_file(name, tmp_path)
    assert not job.errors
    every = list(brute(name, tmp_path))
    for objective in ("step_time", "headroom"):
        found = plan(job.phases[0], job.sources, objective=objective, most=3)

        def key(one: Found, objective: str = objective) -> tuple[float, float]:
            figures = (one.seconds, float(one.peak))
            return figures if objective == "step_time" else (figures[1], figures[0])

        ordered = sorted(every, key=key)
        top = [(each.score.step_seconds, each.score.peak_bytes) for each in found.best.top]
        assert top == [(one.seconds, one.peak) for one in ordered[:3]]
        alike = [one.chosen for one in ordered if key(one) == key(ordered[0])]
        assert named(found.best.top[0].chosen) in alike
        front = {(each.score.step_seconds, each.score.peak_bytes) for each in found.best.front}
        assert front == {
            (one.seconds, one.peak)
            for one in every
            if not any(
                other.seconds <= one.seconds
                and other.peak <= one.peak
                and (other.seconds, other.peak) != (one.seconds, one.peak)
                for other in every
            )
        }
        for field, values in FILES[name][1].items():
            for value in values:
                best = min((key(one) for one in every if one.chosen[field] == value), default=None)
                at = next(
                    (
                        p
                        for p, v in found.best.by_value
                        if (p.endswith(f".{field}"), v) == (True, value)
                    ),
                    None,
                )
                if best is None:
                    assert at is None
                    continue
                assert at is not None
                score = found.best.by_value[at, value].score
                assert key(Found({}, score.step_seconds or 0.0, score.peak_bytes)) == best
        tally = found.tally
        assert tally.searched == tally.legal + tally.outdone + sum(tally.rejected.values())
        assert tally.searched == sum(1 for _ in leaves(fields(found.subject), found.subject))
        assert tally.legal + tally.outdone >= len(every) >= tally.legal
        assert found.gap is None


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT)
def test_what_is_told_of_a_search_that_ended_early_holds(name: str, tmp_path: Path) -> None:
    """Whatever number of sets it takes: no layout is below its bounds, and what it calls proven is
    what the whole search finds."""
    job = open_file(name, tmp_path)
    every = list(brute(name, tmp_path))
    subject = subject_of(job.phases[0])
    whole = sum(1 for _ in leaves(fields(subject), subject))
    early = proven = 0
    for objective in ("step_time", "headroom"):
        best = Best(objective, 3)
        keys = sorted(best.key(one.seconds, one.peak) for one in every)
        for most in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233):
            search, best = Search(subject, most=most), Best(objective, 3)
            search.run(best)
            tally, gap = search.tally, search.gap
            assert tally.searched == tally.legal + tally.outdone + tally.rejected.total()
            assert tally.searched + tally.unsearched == whole
            if gap is None:
                continue
            early += 1
            found = Plan(job.phases[0], subject, best, tally, gap, None, None, 0.0)
            shown = {(each.score.step_seconds, each.score.peak_bytes) for each in best.front}
            for one in every:
                known = any(s <= one.seconds and p <= one.peak for s, p in shown)
                assert known or gap.below(Bound(one.seconds, one.peak))
                for field, value in one.chosen.items():
                    at = next(
                        p
                        for p in {k[0] for k in gap.values} | {k[0] for k in best.by_value}
                        if p.endswith(f".{field}")
                    )
                    has = best.by_value.get((at, value))
                    key = best.key(one.seconds, one.peak)
                    if has is None or key < best.key(has.score.step_seconds, has.score.peak_bytes):
                        assert best.key(*gap.values[at, value]) <= key
            for place, each in enumerate(best.top):
                if found.proven(each):
                    proven += 1
                    score = each.score
                    assert best.key(score.step_seconds, score.peak_bytes) == keys[place]
            for each in best.front:
                seconds, peak = each.score.step_seconds or 0.0, each.score.peak_bytes
                if not gap.below(Bound(seconds, peak)):
                    assert not any(
                        one.seconds <= seconds
                        and one.peak <= peak
                        and (one.seconds, one.peak) != (seconds, peak)
                        for one in every
                    )
    assert early > 8
    assert proven


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "dense" else [pytest.mark.slow]) for n in WIDE]
)
def test_no_legal_layout_takes_less_than_a_bound_of_any_set_it_is_in(
    name: str, tmp_path: Path
) -> None:
    """And what falls by a rule of a set of layouts is told an error by the rules of the file."""
    text, number = WIDE[name]
    path = tmp_path / "wide.par"
    path.write_text(text)
    job = pipeline.checked(pipeline.load(path))
    assert not job.errors
    search = Watched(subject_of(job.phases[0]))
    every = [each for stem in search.stems.every() for each in search._grids(stem)]
    assert len(every) > 5
    random, seen = Random(7), 0
    for _, grid in random.choices(every, k=number):
        works = [each for found in search.grids.works(grid.stem).values() for each in found]
        work = random.choice(works)
        ways = [each for each in search.placing.ways(grid.stem) if each.layout is not None]
        if not ways:
            continue
        way = random.choice(ways)
        placed = search.placing.of(grid.stem, search.grids.subject(grid), way)
        if not placed.places:
            continue
        place = random.choice(placed.places)
        method = random.choice(grid.stem.lists["method"].ways)
        cut = Cut(Core(grid, work, grid.microbatches(work), 0), place, method)
        whole = search._subject(cut, method)
        chosen = {**grid.chosen, **work.chosen, **place.order, **place.state, **method}
        values = {p.rpartition(".")[2]: spelling(v) for p, v in chosen.items()}
        told = pipeline.check(path, (), {path: closed(text, values)})
        phase = told.phases[0]
        assert phase.spec == whole.spec
        codes = {each.code for each in told.errors}
        bounds = dict(search.of(grid, work, way, place, method))
        code = bounds.pop("code", None)
        if code is not None:
            assert code in codes, (values, codes)
            continue
        if codes - {"M201", "M204"}:
            continue
        book = ledger(phase, whole.laid_out)
        assert book.time is not None
        for words, bound in bounds.items():
            assert 0 <= bound.seconds <= book.time.step_seconds, words
            assert 0 < bound.bytes <= book.memory.worst.peak_bytes, words
        seen += 1
    assert seen > number // 8


class Watched(Search):
    """A search whose bounds can be asked one by one."""

    def of(self, grid: Grid, work: Work, way: Way, place: Place, method: Any) -> Any:
        times, weights, stem = self.times, self.weights, grid.stem
        m, scattered = grid.microbatches(work), may_scatter(stem)
        code = self.asking.of("work", self.grids.subject(grid))(work.chosen)
        if code is not None:
            yield "code", code
            return
        least = weights.least_state(grid)
        few = [found[0] for found in self.grids.works(stem).values()]
        kept = min(max(weights.of_one(grid, each)) for each in few)
        ways = self.placing.apart(stem)
        yield "grid", Bound(times.of_grid(grid, few, ways, scattered=scattered), least + kept)
        kept = weights.activations(grid, work, m)
        ideal = times.ideal(grid, work, way, work.micro_batch, scattered=scattered)
        yield "core", Bound(ideal, least + kept)
        kept += weights.inside(grid, work)
        seconds = times.of_order(grid, work, m, way, scattered=scattered)
        yield "order", Bound(seconds, least + kept)
        zero, shards = place.zero, place.shards
        alone = shards.dense == 1
        (widest,) = (
            each for at, each in weights.widest(grid) if (at, each.dense == 1) == (zero, alone)
        )
        core = Core(grid, work, m, 0)
        floors = weights.floors(core, zero, widest)
        (floor,) = (each for each in floors if each.method is method)
        bytes_ = weights.above(grid, floor, zero, shards)
        yield "cut", Bound(times.of_place(grid, work, m, way, place), bytes_)


def closed(text: str, values: dict[str, str]) -> str:
    """The text with every `auto` in place of which a value is known."""
    return re.sub(
        r"(\w+) = auto( <= \d+)?",
        lambda found: f"{found[1]} = {values.get(found[1], 'auto')}",
        text,
    )
