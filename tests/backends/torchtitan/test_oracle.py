"""torchtitan's own configuration manager, meshes and models, asked about what is emitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.layout import Layout
from parlay.compiler.ledger import held, parameters
from parlay.compiler.spec.blocks import Spec

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[3]
Drawn = Callable[[Random], str]
Oracle = Callable[..., list[dict[str, Any]]]


def question(path: Path, folder: Path) -> tuple[dict[str, Any], pipeline.Job] | None:
    """What is asked of a file; None where the target does not express it."""
    checked = pipeline.check(path, ("torchtitan",))
    if checked.errors:
        return None
    files = pipeline.emit(checked, "torchtitan").files
    folder.mkdir()
    (folder / "parlay_config.py").write_text(files["torchtitan/parlay_config.py"])
    cluster = checked.phases[0].spec.cluster
    assert cluster is not None
    asked = {"folder": str(folder), "world": cluster.gpus, "groups": cluster.gpus <= 64}
    return asked, checked


def held_to(answer: dict[str, Any], checked: pipeline.Job) -> None:
    """Degrees, parameters and groups equal Parlay's."""
    [phase] = checked.phases
    parallel, layout = phase.spec.parallel, pipeline.lay_out(phase)
    assert answer["accepted"], f"{answer}\n{checked.path.read_text()}"
    assert layout is not None
    degrees = answer["degrees"]
    for axis in ("tp", "pp", "cp", "ep"):
        assert degrees[axis] == getattr(parallel, axis)
    assert degrees["dp_replicate"] * degrees["dp_shard"] == parallel.dp
    assert answer["parameters"] == _parameters(phase.spec)
    for name, groups in answer.get("mesh", {}).items():
        copies = "replicate" if parallel.zero else "dp"
        kind = {"dp_shard": "shard", "dp_replicate": copies, "efsdp": "edp"}.get(name, name)
        if kind == "shard" and (parallel.cp > 1 or parallel.zero == 0):
            continue  # cp is an axis of its own there
        if kind == "edp" and degrees["dp_replicate"] > 1:
            continue
        for group in groups:
            assert _group(layout, kind, group[0]) == group, (name, group)


def _parameters(spec: Spec) -> int:
    assert spec.model is not None
    return parameters.total(spec.model, vocab_rows=held.padded_vocab(spec))


def _group(layout: Layout, kind: str, rank: int) -> list[int]:
    return sorted(layout.group_of(kind, rank))


def test_what_the_target_expresses_is_accepted(
    tmp_path: Path, drawn_fsdp: Drawn, oracle: Oracle
) -> None:
    random, found = Random(3), list[tuple[dict[str, Any], pipeline.Job]]()
    while len(found) < 50:
        path = tmp_path / f"job-{len(found)}.par"
        path.write_text(drawn_fsdp(random))
        asked = question(path, tmp_path / f"out-{len(found)}")
        found += [asked] if asked else []
    answers = oracle("torchtitan", "torchtitan_config.py", [asked for asked, _ in found])
    for (_, checked), answer in zip(found, answers, strict=True):
        held_to(answer, checked)


def test_examples_are_accepted(tmp_path: Path, oracle: Oracle) -> None:
    paths = sorted((ROOT / "examples").glob("*/*.par"))
    found = [each for path in paths if (each := question(path, tmp_path / path.stem))]
    assert found
    answers = oracle("torchtitan", "torchtitan_config.py", [asked for asked, _ in found])
    for (_, checked), answer in zip(found, answers, strict=True):
        held_to(answer, checked)


def test_the_committed_settings_are_those_of_its_classes(python_of: Callable[..., Any]) -> None:
    import subprocess

    python, drivers, variables = python_of("torchtitan")
    ended = subprocess.run(
        [python, drivers / "torchtitan_options.py"],
        capture_output=True,
        text=True,
        timeout=200,
        env=variables,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    committed = ROOT / "compiler/backends/torchtitan/options/0.3.json"
    assert ended.stdout == committed.read_text()
