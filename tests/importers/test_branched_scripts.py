"""Public launch scripts that choose among sizes and switches: the run that starts is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.importers import deepspeed, megatron

HERE = Path(__file__).parent / "branched"

SCRIPTS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "gpt-52b.slurm": (
        deepspeed,
        (
            "layers = 64",
            "hidden = 8192",
            "vocab = 50257",
            "nodes = 16",
            "{ gpus = 4 }",
            "tp = 4",
            "pp = 16",
            "zero = 0",
            "global_batch = 1024",
            "warmup = 8",
            "precision = fp16",
            "recompute = full",
            "prescale_gradients = on",
            "lr_decay_iters = 800",
        ),
        ("gradients in fp16: fp32 is written",),
    ),
    "gpt-moe-128.sh": (
        deepspeed,
        (
            "layers = 24",
            "count = 128",
            "top_k = 1",
            "every = 2",
            "capacity = 1",
            "ep = 64",
            "dp = 64",
            "steps = 286103",
            "warmup = 357",
            "recompute = full",
            "aux_loss = 0.01",
        ),
        (
            "--override-lr-scheduler: no known option",
            "--moe-min-capacity 4: no known option",
            "--save gpt-ep-64_$(date): nothing sets it",
            "--train-iters 858306: 300000000000 tokens are over after 286103",
            "the configuration ds_gpt-ep-64_$(date).json is not beside it: its keys are not read",
        ),
    ),
    "deepseek-16b.sh": (
        megatron,
        (
            "layers = 27",
            "hidden = 2048",
            "count = 64",
            "dense_layers = 1",
            "ep = 8",
            "zero = 1",
            "overlap = on",
            "precision = bf16",
            "recompute = selective(core_attention)",
            "steps = 20",
        ),
        (
            "--save $(cd)/saves: nothing sets it",
            'in a branch: chunks="" (taken)',
            'in a branch: NOTE="none" (taken)',
        ),
    ),
}


def test_all_are_asked_about() -> None:
    assert {path.name for path in HERE.iterdir()} == set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_branch_that_runs_is_read(name: str, tmp_path: Path) -> None:
    module, said, lost = SCRIPTS[name]
    found = module.read(HERE / name, node="dgx-a100")
    for line in said:
        assert line in found.text, line
    assert "spread" not in found.text and "q_lora_rank" not in found.text
    for line in lost:
        assert line in found.lost, (line, found.lost)
    # What is not told was read: nothing but these, and branches that the environment decides.
    others = [line for line in found.lost if line not in lost]
    assert all(line.startswith("in a branch: ") for line in others), others
    job = tmp_path / "job.par"
    job.write_text(found.text)
    assert {said.code for said in pipeline.check(job).errors} <= {"M201", "M204"}
