"""DeepSpeed's own configuration and topology, asked about what is emitted."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.deepspeed.options import NEWEST
from parlay.compiler.ledger.recipe import microbatches

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[3]
Drawn = Callable[[Random], str]
Oracle = Callable[..., list[dict[str, Any]]]


def question(path: Path, folder: Path) -> tuple[dict[str, Any], pipeline.Job] | None:
    """What is asked of a file; None where the target does not express it."""
    checked = pipeline.check(path, ("deepspeed",))
    if checked.errors:
        return None
    files = pipeline.emit(checked, "deepspeed").files
    folder.mkdir()
    for name, text in files.items():
        (folder / Path(name).name).write_text(text)
    spec = checked.phases[0].spec
    assert spec.cluster is not None and spec.model is not None
    parallel = spec.parallel
    asked: dict[str, Any] = {
        "file": str(folder / "ds_config.json"),
        "world": spec.cluster.gpus,
        "dp": parallel.dp,
    }
    if parallel.pp > 1:
        axes = axes_of(files["deepspeed/train.py"])
        sizes = {"pipe": parallel.pp, "data": parallel.dp}
        ends = [0] if spec.model.tied_embeddings else []
        asked |= {"axes": axes, "dims": [sizes[axis] for axis in axes]}
        asked |= {"layers": [*ends, *[1] * parallel.pp, *ends]}
    return asked, checked


def axes_of(train: str) -> list[str]:
    """The axes that train.py gives to DeepSpeed's topology, slowest first."""
    for node in ast.walk(ast.parse(train)):
        if isinstance(node, ast.keyword) and node.arg == "axes":
            found: list[str] = ast.literal_eval(node.value)
            return found
    raise AssertionError("no axes")


def held_to(asked: dict[str, Any], answer: dict[str, Any], checked: pipeline.Job) -> None:
    """What DeepSpeed makes of the file equals what the `.par` says."""
    [phase] = checked.phases
    spec, layout = phase.spec, pipeline.lay_out(phase)
    train, parallel = spec.train, spec.parallel
    assert answer["accepted"], f"{answer}\n{checked.path.read_text()}"
    assert layout is not None and train is not None
    derived, (kind, params) = answer["derived"], answer["derived"]["optimizer"]
    offload = parallel.offload
    sums = {"fp32": "torch.float32", "bf16": "torch.bfloat16"}
    assert derived["world"] == parallel.dp
    assert derived["batch"] == train.global_batch
    assert derived["micro_batch"] == train.micro_batch
    assert derived["microbatches"] == microbatches(spec)
    assert derived["clip"] == train.clip
    assert derived["zero"] == parallel.zero
    if parallel.zero:
        assert derived["overlap"] == (parallel.overlap and parallel.pp == 1)
    assert (derived["bf16"], derived["fp16"]) == (
        train.precision == "bf16",
        train.precision == "fp16",
    )
    assert derived["sums"] == train.gradients
    assert derived["sent"] == sums[train.gradients]
    assert kind == "adamw" and params["adam_w_mode"] is True
    for name in ("lr", "eps", "weight_decay"):
        assert params[name] == train.optimizer[name]
    assert params["betas"] == list(train.optimizer["betas"])
    assert derived["every"] == spec.log.every
    assert derived["tensorboard"] == spec.log.tensorboard
    for flag, name in (("optimizer", "offload_optimizer"), ("params", "offload_param")):
        assert derived[name] == (offload.name if flag in offload.flags else None)
    if "axes" in asked:
        for axis, size in zip(asked["axes"], asked["dims"], strict=True):
            if size > 1:  # an axis of one rank has no groups there
                theirs = {tuple(group) for group in answer["groups"][axis]}
                ours = layout.groups({"pipe": "pp", "data": "dp"}[axis])
                assert theirs == {tuple(group) for group in ours}, (axis, asked)
        first = 1 if len(asked["layers"]) > parallel.pp else 0
        inner = [stage + first for stage in range(1, parallel.pp)]
        assert answer["parts"] == [0, *inner, len(asked["layers"])]


def test_what_the_target_expresses_is_accepted(
    tmp_path: Path, drawn_deepspeed: Drawn, oracle: Oracle
) -> None:
    random, found = Random(11), list[tuple[dict[str, Any], pipeline.Job]]()
    while len(found) < 50:
        path = tmp_path / f"job-{len(found)}.par"
        path.write_text(drawn_deepspeed(random))
        asked = question(path, tmp_path / f"out-{len(found)}")
        found += [asked] if asked else []
    answers = oracle("deepspeed", "deepspeed_config.py", [asked for asked, _ in found])
    for (asked, checked), answer in zip(found, answers, strict=True):
        held_to(asked, answer, checked)


def test_examples_are_accepted(tmp_path: Path, oracle: Oracle) -> None:
    paths = sorted((ROOT / "examples").glob("*/*.par"))
    found = [each for path in paths if (each := question(path, tmp_path / path.stem))]
    assert found
    answers = oracle("deepspeed", "deepspeed_config.py", [asked for asked, _ in found])
    for (asked, checked), answer in zip(found, answers, strict=True):
        held_to(asked, answer, checked)


def test_the_committed_keys_are_those_of_its_code(python_of: Callable[..., Any]) -> None:
    python, drivers, variables = python_of("deepspeed")
    ended = subprocess.run(
        [python, drivers / "deepspeed_options.py"],
        capture_output=True,
        text=True,
        timeout=200,
        env=variables,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    committed = ROOT / f"compiler/backends/deepspeed/options/{NEWEST}.json"
    assert ended.stdout == committed.read_text()
