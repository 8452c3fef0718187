"""20,000 mutated files in CI, by fixed seeds; `python -m tests.fuzz` goes on from there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.hunt import chunk, found_in

SEEDS = 20
EACH = 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_input_does_harm(seed: int) -> None:
    findings = chunk((seed, EACH))
    assert findings == [], f"{findings[0].data!r}\n{findings[0].what}"


def test_a_few_inputs_do_no_harm() -> None:
    assert chunk((1000, 60)) == []


def test_the_hunt_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fuzz import hunt

    def broken(path: Path, data: bytes) -> None:
        if data == b"x":
            raise IndexError("out of range")

    monkeypatch.setattr(hunt, "one", broken)
    (finding,) = found_in([b"", b"x", b"y"], tmp_path)
    assert finding.data == b"x" and "IndexError" in finding.place


def test_the_same_seed_makes_the_same_inputs() -> None:
    from tests.fuzz.mutate import Mutator

    assert list(Mutator(3).inputs(50)) == list(Mutator(3).inputs(50))
