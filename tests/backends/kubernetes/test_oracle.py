"""Strict schemas of Kubernetes and Kubeflow, asked about what is emitted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline

Drawn = Callable[[Random], str]
Oracle = Callable[..., list[dict[str, Any]]]
pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[3]
OPTIONS = (
    "",
    'image = "nvcr.io/nvidia/pytorch:25.06-py3", claim = "runs", deadline = 2d',
    'queue = "batch", resources = ["rdma/ib=8", "cpu=96", "memory=1Ti"], namespace = "team-a"',
    'tolerations = ["nvidia.com/gpu"], node_selector = ["zone=a"], env = ["A=on", "B=1e3"]',
    'service_account = "s", pull_secret = "p", workspace = "/scratch", gpu = "amd.com/gpu"',
)


@pytest.fixture(scope="module")
def crds() -> str:
    """The folder of Kubeflow's CustomResourceDefinitions; they are never copied into this one."""
    folder = os.environ.get("PARLAY_CRDS", "")
    if not folder or not list(Path(folder).glob("*.yaml")):
        pytest.skip("PARLAY_CRDS names no folder with Kubeflow's CustomResourceDefinitions")
    return folder


def emitted(path: Path) -> list[dict[str, str]]:
    """What the driver is asked of a file; nothing where the target does not express it."""
    job = pipeline.check(path, ("kubernetes",))
    if job.errors:
        return []
    return [{"text": text} for text in pipeline.emit(job, "kubernetes").files.values()]


def accepted(oracle: Oracle, asked: list[dict[str, str]], crds: str) -> None:
    answers = oracle("kubernetes", "kubernetes_objects.py", asked, CRDS=crds)
    for question, answer in zip(asked, answers, strict=True):
        assert answer["accepted"], f"{answer['why']}\n{question['text'][-3000:]}"
        assert answer["kinds"] == ["ConfigMap", "TrainJob"]


def test_what_the_target_expresses_is_accepted(
    tmp_path: Path, drawn: Drawn, oracle: Oracle, crds: str
) -> None:
    random, asked = Random(6), list[dict[str, str]]()
    while len(asked) < 50:
        path = tmp_path / f"job {len(asked)}.par"
        entry = random.choice(("megatron", "megatron", "deepspeed"))
        options = f"entry = {entry}, {random.choice(OPTIONS)}"
        target = f'target "kubernetes" {{ options {{ {options} }} }}\n'
        path.write_text(drawn(random) + target)
        asked += emitted(path)
    accepted(oracle, asked, crds)


def test_examples_are_accepted(oracle: Oracle, crds: str) -> None:
    paths = sorted((ROOT / "examples").glob("*/compiled/**/trainjob*.yaml"))
    assert len(paths) > 20
    accepted(oracle, [{"text": path.read_text()} for path in paths], crds)


def test_what_is_wrong_is_refused(oracle: Oracle, tiny: Path, crds: str) -> None:
    [asked] = emitted(tiny)
    slips = [
        ("numNodes: 1", "numNodes: one"),
        ("numNodes", "nodes"),
        ("emptyDir:\n", "emptyFolder:\n"),
        ("mountPath: /dev/shm", "path: /dev/shm"),
        ("apiVersion: v1\n", "apiVersion: v9\n"),
    ]
    texts = [asked["text"].replace(right, wrong) for right, wrong in slips]
    assert asked["text"] not in texts
    questions = [{"text": text} for text in texts]
    answers = oracle("kubernetes", "kubernetes_objects.py", questions, CRDS=crds)
    for slip, answer in zip(slips, answers, strict=True):
        assert not answer["accepted"], slip
