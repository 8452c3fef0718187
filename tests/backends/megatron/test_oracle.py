"""Megatron-LM's own parser, validation and process groups, asked about what is emitted."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.megatron.options import NEWEST, table
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.parameters import total

Drawn = Callable[[Random], str]
Oracle = Callable[..., list[dict[str, Any]]]
pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[3]
KINDS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "DATA_PARALLEL_GROUP_WITH_CP": "dp_cp",
}
OF_EXPERTS = {
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
}


def questions(path: Path) -> list[tuple[dict[str, Any], pipeline.Job]]:
    """What the parser is asked of a file, by phases; none where the target does not express it."""
    checked = pipeline.check(path, ("megatron",))
    if checked.errors:
        return []
    files = pipeline.emit(checked, "megatron").files
    folders = sorted({name.rpartition("/")[0] for name in files})
    return [(_asked(files, folder, checked), checked) for folder in folders]


def _asked(files: Mapping[str, str], folder: str, checked: pipeline.Job) -> dict[str, Any]:
    arguments = files[f"{folder}/arguments.txt"]
    world = re.search(r": (\d+) rank", arguments)
    assert world is not None
    words = [w for line in arguments.splitlines() if line[:1] != "#" for w in shlex.split(line)]
    cluster = checked.phases[0].spec.cluster
    assert cluster is not None
    return {
        "world": int(world[1]),
        "arguments": words,
        "queue": "1" if "CONNECTIONS=1" in files[f"{folder}/pretrain.sh"] else None,
        "capability": "10.0" if cluster.node.gpu.fp4_flops else "9.0",
    }


def generated(
    drawn: Drawn, folder: Path, number: int, seed: int
) -> list[tuple[dict[str, Any], pipeline.Job]]:
    """So many questions from jobs that the target expresses."""
    random, found = Random(seed), list[tuple[dict[str, Any], pipeline.Job]]()
    while len(found) < number:
        path = folder / f"job-{len(found)}.par"
        path.write_text(drawn(random))
        found += questions(path)
    return found


def test_what_the_target_expresses_is_accepted(
    tmp_path: Path, drawn: Drawn, oracle: Oracle
) -> None:
    found = generated(drawn, tmp_path, 50, seed=2)
    answers = oracle("megatron", "megatron_parse.py", [asked for asked, _ in found])
    for (_, checked), answer in zip(found, answers, strict=True):
        assert answer["accepted"], f"{answer['why']}\n{checked.path.read_text()}"
        model, parallel = checked.phases[0].spec.model, checked.phases[0].spec.parallel
        assert model is not None
        assert answer["derived"]["data_parallel_size"] == parallel.dp
        assert answer["derived"]["ffn_hidden_size"] == model.ffn
        assert answer["derived"]["layers"] == model.layers
        assert answer["derived"]["sequence_parallel"] == (
            parallel.sequence_parallel and parallel.tp > 1
        )


def test_examples_are_accepted(oracle: Oracle) -> None:
    paths = sorted((ROOT / "examples").glob("*/*.par"))
    asked = [(path, each) for path in paths for each, _ in questions(path)]
    assert len(asked) > 15
    answers = oracle("megatron", "megatron_parse.py", [each for _, each in asked])
    for (path, _), answer in zip(asked, answers, strict=True):
        assert answer["accepted"], (path.stem, answer["why"])


COUNTED = (
    "deepseek-v3",
    "gpt-oss-20b",
    "gpt2-xl-8gpu",
    "llama-70b-64gpu",
    "mixtral-8x22b",
    "sc21-gpt-1t",
)


@pytest.mark.timeout(600)
def test_its_own_model_has_as_many_parameters(tmp_path: Path, drawn: Drawn, oracle: Oracle) -> None:
    """GPTModel on the meta device, from the emitted arguments."""
    paths = [path for name in COUNTED for path in (ROOT / "examples" / name).glob("*.par")]
    found = [asked for path in paths for asked in questions(path)]
    assert len(found) == len(COUNTED)
    assert any("--multi-latent-attention" in asked["arguments"] for asked, _ in found)
    found += generated(drawn, tmp_path, 12, seed=11)
    answers = oracle("megatron", "megatron_parameters.py", [asked for asked, _ in found])
    for (_, checked), answer in zip(found, answers, strict=True):
        assert "why" not in answer, (checked.path.read_text(), answer)
        model = checked.phases[0].spec.model
        assert model is not None
        assert answer["parameters"] == total(model), checked.path.read_text()


def test_groups_of_the_emitted_degrees(tmp_path: Path, drawn: Drawn, oracle: Oracle) -> None:
    found = [
        (_degrees(asked), checked)
        for asked, checked in generated(drawn, tmp_path, 40, seed=5)
        if asked["world"] <= 128
    ]
    assert len(found) > 20
    answers = oracle("megatron", "megatron_groups.py", [asked for asked, _ in found])
    for (asked, checked), answer in zip(found, answers, strict=True):
        assert "rejected" not in answer, (asked, answer)
        layout = pipeline.lay_out(checked.phases[0])
        assert layout is not None
        model = checked.phases[0].spec.model
        dense = model is not None and model.experts is None
        for theirs, ours in (KINDS if dense else KINDS | OF_EXPERTS).items():
            assert _sets(answer["groups"][theirs]) == _ours(layout, ours), (ours, asked)


def _degrees(asked: dict[str, Any]) -> dict[str, Any]:
    words = asked["arguments"]
    names = {"tp": "tensor", "pp": "pipeline", "ep": "expert"}
    options = {axis: f"--{name}-model-parallel-size" for axis, name in names.items()}
    options |= {"cp": "--context-parallel-size", "etp": "--expert-tensor-parallel-size"}
    sizes = {axis: int(words[words.index(option) + 1]) for axis, option in options.items()}
    last = "pp-dp" if "--use-tp-pp-dp-mapping" in words else "dp-pp"
    return {"world": asked["world"], **sizes, "order": f"tp-cp-ep-{last}"}


def _sets(groups: Iterable[Iterable[int]]) -> set[frozenset[int]]:
    return {frozenset(group) for group in groups}


def _ours(layout: Layout, kind: str) -> set[frozenset[int]]:
    return _sets(layout.groups(kind))


def test_the_committed_options_are_those_of_the_parser(python_of: Callable[..., Any]) -> None:
    python, drivers, variables = python_of("megatron")
    ended = subprocess.run(
        [python, drivers / "megatron_options.py"],
        capture_output=True,
        text=True,
        timeout=200,
        env=variables,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    committed = ROOT / "compiler/backends/megatron/options" / f"{NEWEST}.json"
    assert ended.stdout == committed.read_text()
    assert len(table(NEWEST)) > 800
