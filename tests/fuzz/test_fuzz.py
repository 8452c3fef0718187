"""6,000 mutated files in CI, by fixed seeds; `python -m tests.fuzz` goes on from there."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from parlay.compiler.backends import TARGETS

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.hunt import chunk, found_in, one

FOUND = Path(__file__).with_name("found")
INPUTS = 6_000
EACH = 500


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_input_does_harm() -> None:
    tasks = [(seed, EACH) for seed in range(INPUTS // EACH)]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for findings in pool.imap_unordered(chunk, tasks):
            assert findings == [], f"{findings[0].data!r}\n{findings[0].what}"


def test_a_few_inputs_do_no_harm() -> None:
    assert chunk((1000, 60)) == []


@pytest.mark.parametrize("name", sorted(path.name for path in FOUND.iterdir()))
def test_what_was_found_stays_mended(name: str, tmp_path: Path) -> None:
    (tmp_path / "other.par").write_text("")
    assert list(found_in([(FOUND / name).read_bytes()], tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_target_brings_it_back(target: str, tmp_path: Path) -> None:
    (tmp_path / "other.par").write_text("")
    for path in sorted(FOUND.iterdir()):
        one(tmp_path / "run.par", path.read_bytes(), [target])


def test_the_hunt_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fuzz import hunt

    def broken(path: Path, data: bytes, targets: Sequence[str]) -> None:
        if data == b"x":
            raise IndexError("out of range")

    monkeypatch.setattr(hunt, "one", broken)
    (finding,) = found_in([b"", b"x", b"y"], tmp_path)
    assert finding.data == b"x" and "IndexError" in finding.place


def test_the_same_seed_makes_the_same_inputs() -> None:
    from tests.fuzz.mutate import Mutator

    assert list(Mutator(3).inputs(50)) == list(Mutator(3).inputs(50))
