"""Kubeflow's own models, asked about every TrainJob of the examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline

Oracle = Callable[..., list[dict[str, Any]]]
pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[3]


def ask(oracle: Oracle, texts: list[str]) -> list[dict[str, Any]]:
    return oracle("kubernetes", "kubernetes_models.py", [{"text": text} for text in texts])


def test_examples_are_accepted(oracle: Oracle) -> None:
    paths = sorted((ROOT / "examples").glob("*/compiled/**/trainjob*.yaml"))
    assert len(paths) > 20
    answers = ask(oracle, [path.read_text() for path in paths])
    for path, answer in zip(paths, answers, strict=True):
        assert answer["accepted"], (path, answer["why"])


@pytest.mark.parametrize(
    "options",
    [
        'image = "nvcr.io/nvidia/pytorch:25.06-py3", claim = "runs", deadline = 2d',
        'queue = "batch", resources = ["rdma/ib=8", "memory=1Ti"], namespace = "a"',
        'tolerations = ["nvidia.com/gpu"], node_selector = ["zone=a"], env = ["A=on", "B=1e3"]',
    ],
)
def test_options_are_accepted(oracle: Oracle, tiny: Path, tmp_path: Path, options: str) -> None:
    path = tmp_path / "job.par"
    path.write_text(tiny.read_text() + f'target "kubernetes" {{ options {{ {options} }} }}\n')
    job = pipeline.check(path, ("kubernetes",))
    assert not job.errors
    answers = ask(oracle, list(pipeline.emit(job, "kubernetes").files.values()))
    assert [answer["why"] for answer in answers] == [[]]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("numNodes: 1", "numNodes: one"),
        ("numNodes: 1", 'numNodes: "1"'),
        ("numNodes", "nodes"),
        ("mountPath: /dev/shm", "path: /x"),
        ("emptyDir:\n", "emptyFolder:\n"),
        ("apiVersion: v1\n", "apiVersion: v9\n"),
    ],
)
def test_what_is_wrong_is_refused(oracle: Oracle, tiny: Path, right: str, wrong: str) -> None:
    [text] = pipeline.emit(pipeline.check(tiny, ("kubernetes",)), "kubernetes").files.values()
    assert right in text
    [answer] = ask(oracle, [text.replace(right, wrong)])
    assert not answer["accepted"]
