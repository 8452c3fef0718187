"""DeepSpeed's configurations to `.par`: each key is a field, an option, or a line of comment."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parlay.compiler import pipeline
from parlay.compiler.importers import deepspeed
from parlay.compiler.importers.hf import Unreadable
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

WHOLE: dict[str, Any] = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.5,
    "steps_per_print": 20,
    "wall_clock_breakdown": True,
    "communication_data_type": "fp32",
    "data_types": {"grad_accum_dtype": "fp32"},
    "bf16": {"enabled": True},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-7, "weight_decay": 0.1},
    },
    "scheduler": {
        "type": "WarmupCosineLR",
        "params": {
            "total_num_steps": 900,
            "warmup_num_steps": 90,
            "warmup_type": "linear",
            "cos_min_ratio": 0.1,
        },
    },
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "offload_optimizer": {"device": "cpu", "pin_memory": False},
        "reduce_bucket_size": 5e8,
        "stage3_prefetch_bucket_size": 50000000,
        "sub_group_size": 123456,
    },
    "activation_checkpointing": {"partition_activations": True},
    "flops_profiler": {"enabled": True, "profile_step": 3},
    "tensorboard": {"enabled": True},
    "no_such_key": {"inner": 7},
}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    """What the importer makes of a configuration."""

    def imported(config: Any, **given: Any) -> Any:
        path = tmp_path / "ds_config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return deepspeed.read(path, **given)

    return imported


def checked(folder: Path, text: str, *targets: str) -> pipeline.Job:
    path = folder / "job.par"
    path.write_text(text)
    return pipeline.check(path, targets)


def test_fields(read: Callable[..., Any]) -> None:
    text = read(WHOLE, model="llama3-8b").text
    for said in (
        'model from "llama3-8b"',
        "zero = 3",
        "offload = cpu(optimizer)",
        "overlap = off",
        "dp = 8",
        "micro_batch = 4",
        "global_batch = 64",
        "precision = bf16",
        "clip = 0.5",
        "adamw(lr = 0.0003, betas = [0.9, 0.95], eps = 1e-07, weight_decay = 0.1)",
        "steps = 900",
        "cosine(warmup = 90, min_lr = 3e-05)",
        "every = 20",
        "tensorboard = on",
        "wall_clock_breakdown = on",
        "reduce_bucket_size = 500000000",
        "sub_group_size = 123456",
        "offload_optimizer_pin_memory = off",
    ):
        assert said in text, said
    assert "gradients = bf16" not in text
    assert read(WHOLE).lost == (
        "activation_checkpointing.partition_activations = True",
        "no_such_key.inner = 7",
    )


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path


def other(value: Any) -> Any:
    """Another value of the kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [each / 2 for each in value]
    if isinstance(value, str):
        kinds = {"AdamW": "Lamb", "WarmupCosineLR": "OneCycle", "linear": "log"}
        return ({"cpu": "nvme", "fp32": "bf16"} | kinds)[value]
    return value * 2 if isinstance(value, float) else value + 1


@pytest.mark.parametrize("path", list(leaves(WHOLE)), ids=".".join)
def test_no_key_is_lost(read: Callable[..., Any], path: tuple[str, ...]) -> None:
    """Whatever key has another value, the text is another one."""
    changed = copy.deepcopy(WHOLE)
    inside = changed
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = other(inside[path[-1]])
    assert read(changed).text != read(WHOLE).text


def test_what_is_written_checks(read: Callable[..., Any], tmp_path: Path) -> None:
    text = read(WHOLE, model="llama3-8b").text
    job = checked(tmp_path, text, "deepspeed")
    assert [said.message for said in job.errors] == []
    config = json.loads(pipeline.emit(job, "deepspeed").files["deepspeed/ds_config.json"])
    for path in leaves(WHOLE):
        if path[0] in ("scheduler", "no_such_key", "activation_checkpointing"):
            continue  # by train.py, told, told
        ours, theirs = config, WHOLE
        for name in path:
            ours, theirs = ours[name], theirs[name]
        assert ours == theirs, path


AUTOS = {
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}


def test_auto_alone_is_told(read: Callable[..., Any], tmp_path: Path) -> None:
    found = read(AUTOS)
    for name in ("zero_optimization.reduce_bucket_size", "fp16.enabled", "bf16.enabled"):
        assert any(line.startswith(f"{name} = auto") for line in found.lost), name
    # What Hugging Face's Trainer, which alone knows of auto, sets without an option.
    for name, usual in (
        ("train_micro_batch_size_per_gpu", 8),
        ("gradient_clipping", 1.0),
        ("optimizer.params.lr", 5e-05),
    ):
        assert any(line.startswith(f"{name} = {usual}: auto") for line in found.assumed), name
    assert "clip = 1\n" in found.text and "lr = 5e-05" in found.text
    assert any("no model" in line for line in found.assumed)
    assert not checked(tmp_path, found.text).errors


COMMAND = """#!/bin/bash
GPUS=8
ARGUMENTS="--bf16 True --learning_rate 2e-5 --weight_decay 0.01"
deepspeed --hostfile hosts --num_gpus $GPUS --master_port 29501 run_clm.py \\
  --deepspeed ds.json --model_name_or_path meta-llama/Llama-2-7b-hf $ARGUMENTS \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_grad_norm 1.0 \\
  --block_size 2048 --max_steps 500 --gradient_checkpointing True --dataset_name wikitext
"""


def test_auto_is_what_the_command_line_says(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(AUTOS))
    (tmp_path / "hosts").write_text("# ours\nworker-0 slots=8\nworker-1 slots=8\n")
    script = tmp_path / "run.sh"
    script.write_text(COMMAND)
    found = deepspeed.read(script)
    for said in (
        'model from "llama2-7b"',
        "nodes = 2",
        "dp = 16",
        "micro_batch = 4",
        "global_batch = 128",
        "precision = bf16",
        "lr = 2e-05",
        "weight_decay = 0.01",
        "clip = 1",
        "seq = 2048",
        "steps = 500",
        "recompute = full",
    ):
        assert said in found.text, said
    assert "argument of the script: --dataset-name wikitext" in found.lost
    assert not any(line.startswith("train_batch_size") for line in found.lost)
    assert not checked(tmp_path, found.text).errors


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("/models/gpt2-xl/", "gpt2-xl"),
        ("somebody/else", None),
    ],
)
def test_a_model_by_its_name(tmp_path: Path, name: str, preset: str | None) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8}')
    script = tmp_path / "run.sh"
    script.write_text(f"deepspeed train.py --deepspeed ds.json --model_name_or_path {name}\n")
    found = deepspeed.read(script)
    assert ("model from" in found.text.replace("#", "")) == (preset is not None)
    assert preset is None or f'\nmodel from "{preset}"' in found.text
    assert any(name in line for line in found.assumed)


def test_a_configuration_inside_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "MICRO=2\nFILE=./ds_$JOB.json\n"
        'cat <<EOT > $FILE\n{"train_micro_batch_size_per_gpu": $MICRO, "fp16": {"enabled": true},\n'
        ' "zero_optimization": {"stage": 1}}\nEOT\n'
        "deepspeed --num_nodes 2 --num_gpus 4 train.py --deepspeed_config $FILE\n"
    )
    found = deepspeed.read(script, model="gpt2-xl")
    for said in ("micro_batch = 2", "precision = fp16", "zero = 1", "nodes = 2", "gpus = 4"):
        assert said in found.text, said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"train_batch_size": 64}, "micro_batch = 8"),
        ({"train_micro_batch_size_per_gpu": 4}, "global_batch = 32"),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, "dp = 32"),
        ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, "cpu(optimizer)"),
        ({"fp16": {"enabled": True}}, "precision = fp16"),
        ({"bf16": {"enabled": True}}, "gradients = bf16"),
        ({"tensor_parallel": {"autotp_size": 4}}, "tp = 4"),
        ({"pipeline": {"stages": 2}, "bf16": {"enabled": True}}, "zero = 1"),
        ({"optimizer": {"type": "Lamb", "params": {"lr": 1}}}, "optimizer.type Lamb"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}}, "constant("),
        ({"gradient_clipping": "much"}, "gradient_clipping = much: no number"),
        ({"gradient_clipping": -1}, "gradient_clipping = -1: no number"),
        ({"train_batch_size": 2.5}, "train_batch_size = 2.5: no whole number"),
        ({"zero_optimization": {"stage": True}}, "stage = True: no whole number"),
        ('{"train_batch_size": 8, "train_batch_size": 16}', "given twice"),
    ],
)
def test_a_key(read: Callable[..., Any], tmp_path: Path, config: Any, said: str) -> None:
    found = read(config)
    assert said in found.text
    assert not [e for e in checked(tmp_path, found.text).errors if e.code[0] in "PT"]


@pytest.mark.parametrize(
    ("text", "why"), [("", "no JSON"), ("[1]", "no JSON object"), ('{"a": ', "no JSON")]
)
def test_what_is_unreadable(read: Callable[..., Any], text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read(text)


def test_files_that_are_not_there(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    script = tmp_path / "run.sh"
    script.write_text("deepspeed train.py --deepspeed_config gone.json\n")
    for path, why in (
        (tmp_path / "none", "no such file"),
        (script, "gone.json is not beside it"),
        (tmp_path, "the folder has no ds_config.json"),
    ):
        ended = parlay("import", "deepspeed", path)
        assert (ended.status, why in ended.err) == (1, True), ended.err
    script.write_text("echo hello\n")
    assert parlay("import", "deepspeed", script).status == 1


def test_the_command(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(WHOLE))
    out = tmp_path / "job.par"
    assert parlay("import", "deepspeed", path, "--model", "llama3-8b", "-o", out).status == 0
    assert out.read_text() == deepspeed.read(path, model="llama3-8b").text
    ended = parlay("import", "deepspeed", path, "--model", "no-such")
    assert (ended.status, "no model of the catalog" in ended.err) == (1, True)
    assert parlay("import", "hf", path, "--model", "llama3-8b").status == 2


def test_a_model_of_hugging_face(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(WHOLE))
    text = deepspeed.read(path, model=str(tmp_path / "config.json")).text
    assert "layers = 16" in text and "hidden = 2048" in text
    assert not checked(tmp_path, text).errors


NAMES = ("$(touch owned)", '"; import os', "{{ 7*7 }}", "a\nb", "\u202egnp", "\x1b[2J", "../..")


@pytest.mark.parametrize("name", NAMES)
def test_hostile_keys_and_values(read: Callable[..., Any], tmp_path: Path, name: str) -> None:
    config = {name: name, "optimizer": {"type": name}, "zero_optimization": {"stage": name}}
    config |= {"tensorboard": {"enabled": True, "output_path": name, "job_name": name}}
    found = read(config)
    assert found.text.isprintable() or "\n" in found.text
    for line in found.text.splitlines():
        assert line.isprintable(), ascii(line)
    assert not [said for said in checked(tmp_path, found.text).errors if said.code[0] in "PT"]


# ── Whatever stands in a file ─────────────────────────────────────────────────

KEYS = sorted({name for path in leaves(WHOLE) for name in path} | {"fp16", "stages", "pipeline"})
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False),
        st.sampled_from(("auto", "cpu", "nvme", "AdamW", "WarmupLR", "WarmupDecayLR", "fp32")),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=6)), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=settings.default.max_examples * 3 // 2)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8), st.booleans())
def test_any_object_is_read(config: dict[str, Any], named: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ds_config.json"
        path.write_text(json.dumps(config))
        found = deepspeed.read(path, model="gpt2-xl" if named else None)
        assert all(line.isprintable() for line in found.text.splitlines())
        _, told = parse(Source("x", found.text))
        assert not told


@settings(max_examples=settings.default.max_examples * 3 // 2)
@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=6))
def test_any_script_is_read(text: str, words: list[str]) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "d.json").write_text('{"train_batch_size": 8}')
        path = Path(folder) / "run.sh"
        line = f"deepspeed train.py --deepspeed_config d.json {' '.join(words)}"
        path.write_text(f"{text}\n{line}\n", errors="replace")
        with suppress(Unreadable):
            assert deepspeed.read(path).text


# ── Defaults of DeepSpeed that differ, and what public configurations hold ────


def test_the_scheduler_says_the_peak_and_the_warm_up(read: Callable[..., Any]) -> None:
    """It sets the rate of the optimizer; told of no warm-up, it takes 1000 steps of a log curve."""
    adamw = {"type": "AdamW", "params": {"lr": 1e-4}}
    params = {"warmup_max_lr": 3e-4, "total_num_steps": 5000}
    found = read({"optimizer": adamw, "scheduler": {"type": "WarmupDecayLR", "params": params}})
    assert "lr = 0.0003" in found.text and "linear(warmup = 1000)" in found.text
    assert "lr = 0.0003: the scheduler's, the optimizer has 0.0001" in found.assumed
    assert "scheduler.params.warmup_type log: a linear one is written" in found.lost
    # WarmupLR leads up to the optimizer's own, WarmupDecayLR to 0.001.
    for name, rate in (("WarmupLR", "lr = 0.0001"), ("WarmupDecayLR", "lr = 0.001")):
        assert rate in read({"optimizer": adamw, "scheduler": {"type": name}}).text
    flat = {"warmup_num_steps": 0, "warmup_min_ratio": 0.1}
    found = read({"optimizer": adamw, "scheduler": {"type": "WarmupCosineLR", "params": flat}})
    assert "cosine(warmup = 0, min_lr = 1e-08)" in found.text
    assert found.lost == ("scheduler.params.warmup_min_ratio = 0.1: warm-up from 0 is written",)


def test_comments_and_last_commas_as_deepspeed_reads_them(read: Callable[..., Any]) -> None:
    text = """{
      // "train_batch_size": 2,
      "train_batch_size": 12, # not { this
      /* nor
         that */
      "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "//a,}#"},
      },
    }"""
    found = read(text)
    assert "global_batch = 12" in found.text and "dp = 4" in found.text
    assert "offload = nvme(params)" in found.text
    assert "//a,}#" in found.text + "".join(found.lost)


def test_either_name_of_a_key(read: Callable[..., Any]) -> None:
    keys = {"stage": 3, "max_live_parameters": 7, "stage3_max_reuse_distance": 8}
    found = read({"zero_optimization": keys})
    assert "stage3_max_live_parameters = 7" in found.text
    assert "stage3_max_reuse_distance = 8" in found.text
    assert found.lost == ()


TRAINER = """deepspeed --num_gpus 8 train.py --deepspeed ds.json --max_steps 500 \
  --learning_rate 2e-5 --lr_scheduler_type cosine --warmup_ratio 0.03 --adam_beta2 0.95 \
  --weight_decay 0. \
  --output_dir ./out --save_strategy steps --save_steps 200 --save_total_limit 2 \
  --logging_steps 5 --model_max_length 4096 > log 2>&1
"""


def test_what_the_trainer_of_hugging_face_is_told(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"bf16": {"enabled": True}}))
    (tmp_path / "run.sh").write_text(TRAINER)
    found = deepspeed.read(tmp_path / "run.sh")
    for said in (
        "adamw(lr = 2e-05, betas = [0.9, 0.95], eps = 1e-08, weight_decay = 0)",
        "lr_schedule = cosine(warmup = 15)",
        'path = "./out"',
        "every = 200",
        "keep = 2",
        "every = 5",
    ):
        assert said in found.text, said
    assert found.lost == ()


FORK = """EP=64
deepspeed pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
  --seq-length 2048 --micro-batch-size 8 --global-batch-size 512 --fp16 --lr 1.2e-4 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --no-pipeline-parallel \
  --num-experts 128 --moe-expert-parallel-size $EP --vocab-file gpt2-vocab.json \
  --train-tokens 300000000000 --train-iters 858306 --lr-warmup-tokens 375000000 \
  --lr-decay-style cosine --deepspeed --deepspeed_config ds.json --ds-sequence-parallel-size 4
"""


def test_options_of_the_fork(tmp_path: Path) -> None:
    """Its defaults are others than Megatron-LM's; a configuration that is not there is told."""
    script = tmp_path / "run.sh"
    script.write_text(FORK)
    found = deepspeed.read(script, gpus=512)
    for said in (
        "count = 128",
        "top_k = 1",
        "every = 2",
        "aux_loss = 0.1",
        "capacity = 1",
        "ep = 64",
        "etp = 1",
        "cp = 4",
        "cp_method = ulysses",
        "dp = 64",
        "steps = 286103",
        "warmup = 357",
        "vocab = 50257",
        "precision = fp16",
    ):
        assert said in found.text, said
    assert "--train-iters 858306: 300000000000 tokens are over after 286103" in found.lost
    assert "the configuration ds.json is not beside it: its keys are not read" in found.lost
    script.write_text(FORK.replace("--num-experts 128", "--num-experts 1"))
    assert "experts" not in deepspeed.read(script, gpus=512).text
    script.write_text(FORK.replace("--num-experts 128", "--num-experts 64 128 --mlp-type residual"))
    found = deepspeed.read(script, gpus=512)
    assert "count = 64" in found.text and "128: a word after --num-experts" in found.lost
    assert any(line.startswith("--mlp-type residual") for line in found.lost)
