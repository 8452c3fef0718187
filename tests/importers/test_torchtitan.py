"""Configurations of torchtitan: registries of its models, and the TOML of older versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.importers import torchtitan
from parlay.compiler.importers.hf import Unreadable

REGISTRY = """
from torchtitan.models.qwen3 import model_registry


def qwen3_debugmodel():
    return Trainer.Config(model_spec=model_registry("debugmodel"))


def qwen3_8b() -> Trainer.Config:
    model_spec = model_registry("8B", attn_backend="flex")
    return Trainer.Config(
        hf_assets_path="./assets/hf/Qwen3-8B",
        model_spec=model_spec,
        optimizer=default_adamw(lr=3e-4, fused=True),
        training=TrainingConfig(local_batch_size=2, seq_len=4096, steps=100),
        parallelism=ParallelismConfig(data_parallel_shard_degree=8),
    )


def qwen3_8b_float8() -> Trainer.Config:
    config = qwen3_8b()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config()])
    config.compile = CompileConfig(enable=True, components=["model"])
    config.parallelism.tensor_parallel_degree = 2
    config.training.mixed_precision_reduce = "bfloat16"
    config.optimizer.lr = 1e-4
    config.new_section.field = 3
    enable_fused_swiglu(config)
    return config


def qwen3_32b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry(flavor="32B"),
        optimizer=OptimizersContainer.Config(
            param_groups=[ParamGroupConfig(pattern=".*", optimizer_kwargs={"lr": 7e-4})]
        ),
    )
"""

TOML = """
[job]
description = "a run"

[model]
name = "deepseek_v3"
flavor = "671B"
converters = ["float8"]
tokenizer_path = "./assets/tokenizer"

[optimizer]
name = "AdamW"
lr = 2.2e-4
beta1 = 0.9
beta2 = 0.9

[lr_scheduler]
warmup_steps = 2_000
decay_ratio = 0.8
decay_type = "cosine"
lr_min = 0.1

[training]
batch_size = 4
seq_len = 4096
steps = 10_000
dataset = "c4"
compile = true
seed = 7
tensor_parallel_degree = 8

[experimental]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"

[parallelism]
expert_parallel_degree = 32
pipeline_parallel_split_points = ["layers.4"]

[checkpoint]
enable_checkpoint = true
interval = 500

[activation_checkpoint]
mode = "full"
"""


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_one_job_of_a_registry_is_read_and_told(tmp_path: Path) -> None:
    path = written(tmp_path, "config_registry.py", REGISTRY)
    found = torchtitan.read(path)
    assert 'model from "qwen3-8b"' in found.text
    assert found.assumed[0] == "the job qwen3_8b of 4: config_registry.py::NAME takes another"
    # The group of another job is no part of this one.
    assert "lr = 0.0003, betas = [0.9, 0.95]" in found.text
    assert set(found.lost) == {
        "optimizer.fused = True",
        "SelectiveAC.Config: no recomputation is written",
    }


def test_a_job_by_its_name_with_what_it_changes_of_another(tmp_path: Path) -> None:
    written(tmp_path, "config_registry.py", REGISTRY)
    found = torchtitan.read(tmp_path / "config_registry.py::qwen3_8b_float8")
    for said in ("tp = 2", "lr = 0.0001", "compile = on", 'components = ["model"]', "seq = 4096"):
        assert said in found.text, said
    for said in (
        "converters of the model = [Float8LinearConverter.Config(…)]",
        "training.mixed_precision_reduce = bfloat16: fp32 is written",
        "config.new_section.field = 3",
        "enable_fused_swiglu(config)",
    ):
        assert said in found.lost, said
    assert (
        'model from "qwen3-32b"' in torchtitan.read(tmp_path / "config_registry.py::qwen3_32b").text
    )
    with pytest.raises(Unreadable, match="no function nix"):
        torchtitan.read(tmp_path / "config_registry.py::nix")


def test_a_flavour_of_another_family_is_not_taken(tmp_path: Path) -> None:
    """Several families have an 8B; that of the registry counts, and no other."""
    text = REGISTRY.replace("models.qwen3", "models.qwen3_5").replace("Qwen3-8B", "x")
    llama = written(tmp_path, "l.py", text.replace("models.qwen3_5", "models.llama3"))
    assert 'model from "llama3-8b"' in torchtitan.read(llama).text
    with pytest.raises(Unreadable, match="known are"):
        torchtitan.read(written(tmp_path, "o.py", text.replace('"8B"', '"9B"')))


def test_the_older_toml(tmp_path: Path) -> None:
    found = torchtitan.read(written(tmp_path, "run.toml", TOML))
    for said in (
        'model from "deepseek-v3"',
        "nodes = 16",
        "stages = [7, 8, 8, 8, 8, 8, 8, 6]",
        "ep = 32",
        "tp = 8",
        "betas = [0.9, 0.9]",
        "lr_schedule = cosine(warmup = 2000, min_lr = 2.2e-05)",
        "recompute = full",
        "compile = on",
        "seed = 7",
        'path = "c4"',
        'tokenizer = "./assets/tokenizer"',
        "every = 500",
    ):
        assert said in found.text, said
    assert found.lost == (
        "parallelism.pipeline_parallel_split_points = ['layers.4']: no field of it",
        "model.converters = ['float8']",
        "job.description = 'a run'",
    )
    job = tmp_path / "job.par"
    job.write_text(found.text)
    assert {said.code for said in pipeline.check(job).errors} <= {"M201", "M204"}


@pytest.mark.parametrize("text", ["[model", "a = 1", "[model]\nname = 1", "model = 3"])
def test_toml_that_is_no_job(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreadable):
        torchtitan.read(written(tmp_path, "x.toml", text))


@pytest.mark.parametrize(
    ("layers", "options", "stages"),
    [
        # What torchtitan 0.3 itself deals out.
        (32, {}, [8, 9, 8, 7]),
        (30, {"first": 0, "last": 0}, [8, 8, 7, 7]),
        (61, {"each": 8, "schedule": "Interleaved1F1B"}, [7, 8, 8, 8, 8, 8, 8, 6]),
        (61, {"first": 2, "last": 3, "schedule": "Interleaved1F1B"}, [7, 9, 8, 8, 8, 8, 8, 5]),
    ],
)
def test_layers_are_dealt_out_as_torchtitan_does(
    tmp_path: Path, layers: int, options: dict[str, object], stages: list[int]
) -> None:
    names = {"first": "first_stage_less_layers", "last": "last_stage_less_layers"}
    names |= {"each": "layers_per_stage", "schedule": "schedule"}
    given = "".join(f"    pipeline_parallel_{names[n]}={v!r},\n" for n, v in options.items())
    text = (
        "make_gqa_config(dim=64, n_heads=4)\nEmbedding.Config(num_embeddings=99)\n"
        f"make_ffn_config(hidden_dim=128)\nrange({layers})\n"
        "def config():\n  return Trainer.Config(parallelism=ParallelismConfig(\n"
        f"    pipeline_parallel_degree=4,\n{given}  ))\n"
    )
    found = torchtitan.read(written(tmp_path, "c.py", text))
    assert f"stages = {stages}" in found.text


WHOLE_IN_BF16 = """
# A 70B over one node's shards, all of it in bfloat16, on long sequences.
[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 1
seq_len = 32768
dtype = "bfloat16"
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "full"
"""


def test_weights_in_bf16_have_such_moments_and_a_run_its_positions(tmp_path: Path) -> None:
    found = torchtitan.read(written(tmp_path, "run.toml", WHOLE_IN_BF16))
    for said in ("master = none", "gradients = bf16", "states = bf16"):
        assert said in found.text, said
    assert 'model from "llama3-70b" {\n  context = 32768\n}' in found.text
    assert "gradients = bf16: sent as float32, kept as the weights are" in found.assumed
    reduced = WHOLE_IN_BF16.replace("[para", 'mixed_precision_reduce = "bfloat16"\n[para')
    again = torchtitan.read(written(tmp_path, "reduced.toml", reduced))
    assert "gradients = bf16" in again.text
    assert not any("gradients" in said for said in (*again.assumed, *again.lost))
    assert "context = 32768: the positions of a run of that seq" in found.assumed
    short = WHOLE_IN_BF16.replace("32768", "8192").replace('dtype = "bfloat16"', "")
    text = torchtitan.read(written(tmp_path, "short.toml", short)).text
    assert "context" not in text and "states" not in text
