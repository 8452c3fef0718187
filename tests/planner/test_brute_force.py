"""The planner against every layout written into the text, checked and accounted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.checks import subject_of
from parlay.compiler.ledger.document import ledger
from parlay.compiler.planner import plan, spelling
from parlay.compiler.planner.bound import Bounds, Grid, Rest
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
        if chosen.get("cp") == "1" and chosen["cp_method"] != "ring":
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


@pytest.mark.parametrize("name", FILES)
def test_no_legal_layout_takes_less_than_its_bound(name: str, tmp_path: Path) -> None:
    job = open_file(name, tmp_path)
    subject, bounds = subject_of(job.phases[0]), Bounds()
    text, _ = FILES[name]
    seen = 0
    for chosen in leaves(fields(subject), subject):
        candidate = subject.with_values(chosen)
        path = tmp_path / "one.par"
        values = {p.rpartition(".")[2]: spelling(v) for p, v in chosen.items()}
        if seen % 7 == 0 and candidate.layout is not None:
            told = pipeline.check(path, (), {path: written(text, values)})
            if not told.errors:
                (phase,) = told.phases
                book = ledger(phase, candidate.laid_out)
                assert book.time is not None
                bound = bounds.of(Grid.of(candidate, chosen), Rest.of(candidate, {}))
                assert 0 < bound.seconds <= book.time.step_seconds * (1 + 1e-12)
                assert 0 < bound.bytes <= book.memory.worst.peak_bytes
        seen += 1
    assert seen
