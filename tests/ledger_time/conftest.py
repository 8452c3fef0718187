"""Specs of small files, and the published rows that stand beside these tests as facts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.ledger.document import Ledger, ledger
from parlay.compiler.ledger.time import TimeLine, time_of
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase, resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))

JOB = """
model from "{model}"
cluster {{ nodes = {nodes}  node from "{node}" {{ {wires} }} {fabric} }}
parallel {{ {parallel} }}
train {{ seq = {seq}  micro_batch = {micro}  global_batch = {batch}  {train} }}
"""
USUAL: dict[str, Any] = {
    "model": "llama2-7b",
    "nodes": 1,
    "node": "dgx-h100",
    "wires": "",
    "fabric": "",
    "parallel": "zero = 1",
    "seq": 4096,
    "micro": 1,
    "batch": 64,
    "train": "",
}


@pytest.fixture(scope="session")
def runs_csv() -> Path:
    """Published runs, a few of each source."""
    return HERE / "runs.csv"


@pytest.fixture(scope="session")
def job() -> Callable[..., tuple[Spec, Layout]]:
    """A resolved job, with parts of the usual text replaced."""
    return _job


@pytest.fixture(scope="session")
def timed() -> Callable[..., TimeLine]:
    """The time of such a job."""
    return lambda **changed: time_of(*_job(**changed))


@pytest.fixture(scope="session")
def book() -> Callable[..., Ledger]:
    """The whole ledger of such a job."""
    return lambda **changed: _book(_phase(**changed))


def _book(phase: Phase) -> Ledger:
    return ledger(phase, lay_out(phase.spec))


def _job(**changed: Any) -> tuple[Spec, Layout]:
    spec = _phase(**changed).spec
    return spec, lay_out(spec)


def _phase(**changed: Any) -> Phase:
    file, told = parse(Source("job.par", JOB.format(**(USUAL | changed))))
    assert not told, told
    phases, wrong = resolve(file, lambda _: (None, ()))
    assert not wrong, wrong
    return phases[0]
