"""Accelerate's own launch validation, asked about what is emitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.accelerate.options import FREE, GOVERNED, TOP

Oracle = Callable[..., list[dict[str, Any]]]
pytestmark = pytest.mark.oracle
ROOT = Path(__file__).resolve().parents[3]
AXES = {"dp_replicate": "dp", "dp_shard": "dp", "cp": "cp", "tp": "tp", "sp": "cp"}


def job(random: Random) -> str:
    """A file over every field that the configuration holds, legal or not."""
    pick = random.choice
    tp, cp, nodes = pick((1, 1, 2, 4)), pick((1, 1, 2, 4)), pick((1, 2, 4))
    zero = pick((0, 1, 2, 3, 3))
    fields = [f"tp = {tp}, sequence_parallel = off, cp = {cp}, zero = {zero}"]
    fields.append(f"cp_method = {pick(('ring', 'allgather', 'ulysses'))}")
    if zero > 1 and random.random() < 0.4:
        fields.append(f"shard = {pick((2, 4, 8))}")
    offloads = ("none", "none", "cpu(optimizer)", "cpu(optimizer, params)")
    fields.append(f"offload = {pick(offloads)}")
    precision = pick(("bf16", "bf16", "fp16", "fp32"))
    train = [
        f"seq = {pick((1024, 4096))}, micro_batch = {pick((1, 2))}, global_batch = 64",
        f"steps = 500, recompute = {pick(('none', 'full'))}, clip = {pick(('1.0', '0', '0.5'))}",
        f"precision = {precision}, compile = {pick(('on', 'off'))}",
        f"gradients = {pick(('fp32', 'bf16'))}, attention = {pick(('flash', 'math'))}",
    ]
    options = ("", "main_process_port = 29501", 'gpu_ids = "all"', "enable_cpu_affinity = on")
    return (
        "model { layers = 8, hidden = 1024, heads = 16, kv_heads = 8, ffn = 2816, vocab = 32000\n"
        "  context = 8192, rope(theta = 10000) }\n"
        f'cluster {{ nodes = {nodes}, node from "dgx-h100" }}\n'
        f"parallel {{ {', '.join(fields)} }}\n"
        "train {\n  " + "\n  ".join(train) + "\n}\n"
        f'target "accelerate" {{ options {{ {pick(options)} }} }}\n'
    )


def emitted(path: Path) -> tuple[dict[str, Any], pipeline.Job] | None:
    """The text of a file's configuration; None where the target does not express it."""
    checked = pipeline.check(path, ("accelerate",))
    if checked.errors:
        return None
    [text] = pipeline.emit(checked, "accelerate").files.values()
    return {"text": text}, checked


WRONG = (
    "distributed_type: FSDP\nnum_processes: 8\nno_such_key: 1\n",
    "num_processes: 8\n",
    "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_reshard_after_forward: FULL_SHARD\n",
)
Answers = dict[str, list[tuple[dict[str, Any], Any, dict[str, Any]]]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Answers:
    """Every question of this file, asked at once: (asked, what it came from, answer) by kind."""
    folder, random = tmp_path_factory.mktemp("jobs"), Random(6)
    asked: list[tuple[str, dict[str, Any], Any]] = [("keys", {"keys": True}, None)]
    asked += [("wrong", {"text": text}, None) for text in WRONG]
    for path in sorted((ROOT / "examples").glob("*/*.par")):
        if found := emitted(path):
            asked.append(("examples", *found))
    while sum(kind == "drawn" for kind, _, _ in asked) < 50:
        path = folder / f"job-{len(asked)}.par"
        path.write_text(job(random))
        if found := emitted(path):
            asked.append(("drawn", *found))
    told = oracle("accelerate", "accelerate_config.py", [each for _, each, _ in asked])
    kinds = dict.fromkeys(kind for kind, _, _ in asked)
    return {
        kind: [
            (*rest, answer) for (of, *rest), answer in zip(asked, told, strict=True) if of == kind
        ]
        for kind in kinds
    }


def test_what_the_target_expresses_is_accepted(answers: Answers) -> None:
    kinds = set()
    for asked, checked, answer in answers["drawn"]:
        assert answer["accepted"], f"{answer['why']}\n{asked['text']}"
        spec = checked.phases[0].spec
        parallel, environment = spec.parallel, answer["environment"]
        assert answer["processes"] == spec.cluster.gpus
        if "mesh" in answer:
            assert answer["total"] == spec.cluster.gpus
            ours = {"tp": parallel.tp, "cp": parallel.cp, "dp": parallel.dp}
            theirs = dict.fromkeys(ours, 1)
            for name, size in zip(*answer["mesh"], strict=True):
                theirs[AXES[name]] *= size
            assert theirs == ours, asked["text"]
        if "fsdp" in answer:
            assert answer["fsdp"] == {
                "version": 2,
                "reshard": parallel.zero == 3,
                "offload": "CPUOffloadPolicy" if parallel.offload.flags else "OffloadPolicy",
                "again": spec.train.recompute.name == "full",
            }
        elif "ACCELERATE_DEEPSPEED_ZERO_STAGE" in environment:
            assert environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == str(parallel.zero)
            steps = spec.train.global_batch // spec.train.micro_batch // parallel.dp
            assert environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == str(steps)
            assert float(environment["ACCELERATE_GRADIENT_CLIPPING"]) == spec.train.clip
        kinds.add(asked["text"].partition("distributed_type: ")[2].partition("\n")[0])
    assert kinds == {"FSDP", "DEEPSPEED", "MULTI_GPU"}


def test_examples_are_accepted(answers: Answers) -> None:
    assert len(answers["examples"]) >= 2
    for _, checked, answer in answers["examples"]:
        assert answer["accepted"], (checked.path.stem, answer["why"])


def test_keys_are_those_of_accelerate(answers: Answers) -> None:
    [(_, _, known)] = answers["keys"]
    for table in (FREE, GOVERNED):
        for section, names in table.items():
            assert set(names) <= set(known["top" if section == TOP else "options"]), section


def test_what_is_wrong_is_refused(answers: Answers) -> None:
    assert [answer["accepted"] for _, _, answer in answers["wrong"]] == [False] * len(WRONG)
