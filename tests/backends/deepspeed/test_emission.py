"""Files for DeepSpeed without DeepSpeed: what each field becomes, and what is refused."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.deepspeed.options import NEWEST, place_of, sections, version_of
from parlay.compiler.backends.deepspeed.refusals import EXPRESSED
from parlay.compiler.spec.blocks import Checkpoint, Data, Log, Model, Parallel, Train
from parlay.compiler.spec.schema import fields_of

MODEL = (
    "layers = 4, hidden = 64, heads = 4, kv_heads = 2, ffn = 128, vocab = 264, rope(theta = 10000)"
)
TEXT = """model {{ {model} }}
cluster {{ nodes = {nodes}, node from "{node}" {{ gpus = {gpus} }} }}
parallel {{ {parallel} }}
train {{
  seq = 64, micro_batch = 2, global_batch = 32, steps = 100, lr_schedule = cosine(warmup = 7)
  {train}
}}
{rest}
"""
ULYSSES = "cp = 2, cp_method = ulysses, zero = 3"
PLAIN = {
    "model": MODEL,
    "nodes": 1,
    "node": "dgx-h100",
    "gpus": 4,
    "parallel": "zero = 3",
    "train": "",
    "rest": "",
}


def text(**parts: Any) -> str:
    return TEXT.format(**{**PLAIN, **parts})


@pytest.fixture
def emitted(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The files by their names."""

    def compiled(**parts: Any) -> dict[str, str]:
        path = tmp_path / "job.par"
        path.write_text(text(**parts))
        job = pipeline.check(path, ("deepspeed",))
        assert not job.errors, [said.message for said in job.errors]
        files = pipeline.emit(job, "deepspeed").files
        return {Path(name).name: text for name, text in files.items()}

    return compiled


def keys(config: dict[str, Any], section: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every key with its section, and its value."""
    for name, value in config.items():
        inner = f"{section}.{name}".strip(".")
        if isinstance(value, dict):
            yield from keys(value, inner)
        else:
            yield section, name, value


# ── ds_config.json ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parts", "section", "name", "value"),
    [
        ({}, "", "train_batch_size", 32),
        ({}, "", "train_micro_batch_size_per_gpu", 2),
        ({}, "", "gradient_accumulation_steps", 4),
        ({}, "", "gradient_clipping", 1.0),
        ({"train": "clip = 0"}, "", "gradient_clipping", 0.0),
        ({}, "", "communication_data_type", "fp32"),
        ({"train": "gradients = bf16"}, "", "communication_data_type", "bf16"),
        ({"train": "gradients = bf16"}, "data_types", "grad_accum_dtype", "bf16"),
        ({}, "bf16", "enabled", True),
        ({}, "fp16", "enabled", False),
        ({"train": "precision = fp16"}, "fp16", "loss_scale", 0),
        ({"train": "precision = fp32"}, "bf16", "enabled", False),
        ({}, "optimizer", "type", "AdamW"),
        ({}, "optimizer.params", "betas", [0.9, 0.95]),
        ({}, "optimizer.params", "adam_w_mode", True),
        ({}, "optimizer.params", "torch_adam", False),
        ({"node": "laptop"}, "optimizer.params", "torch_adam", True),
        ({}, "zero_optimization", "stage", 3),
        ({}, "zero_optimization", "stage3_param_persistence_threshold", 0),
        ({}, "zero_optimization", "overlap_comm", True),
        ({"parallel": "zero = 2, overlap = off"}, "zero_optimization", "overlap_comm", False),
        (
            {"parallel": "cp = 2, cp_method = ulysses, zero = 3"},
            "zero_optimization",
            "reduce_scatter",
            False,
        ),
        ({"parallel": "zero = 1"}, "zero_optimization", "allgather_bucket_size", 40_000_000),
        ({"parallel": "pp = 2, zero = 1"}, "zero_optimization", "overlap_comm", False),
        ({"parallel": "pp = 2, zero = 1"}, "pipeline", "stages", 2),
        ({"parallel": "pp = 2, zero = 1"}, "pipeline", "activation_checkpoint_interval", 0),
        (
            {"parallel": "zero = 3, offload = cpu(optimizer, params)"},
            "zero_optimization.offload_param",
            "device",
            "cpu",
        ),
        (
            {"parallel": "zero = 1, offload = cpu(optimizer)"},
            "zero_optimization.offload_optimizer",
            "device",
            "cpu",
        ),
        ({"rest": "log { every = 7 }"}, "", "steps_per_print", 7),
        ({"rest": "log { tensorboard = on }"}, "tensorboard", "enabled", True),
        (
            {"rest": 'target "deepspeed" { options { stage3_prefetch_bucket_size = 7 } }'},
            "zero_optimization",
            "stage3_prefetch_bucket_size",
            7,
        ),
        (
            {"rest": 'target "deepspeed" { options { offload_param_buffer_count = 7 } }'}
            | {"parallel": "zero = 3, offload = cpu(optimizer, params)"},
            "zero_optimization.offload_param",
            "buffer_count",
            7,
        ),
        (
            {"rest": 'target "deepspeed" { options { offload_optimizer_nvme_path = "/x" } }'}
            | {"parallel": "zero = 3, offload = nvme(optimizer)"},
            "zero_optimization.offload_optimizer",
            "device",
            "nvme",
        ),
        (
            {"rest": 'target "deepspeed" { options { comms_logger_verbose = on } }'},
            "comms_logger",
            "verbose",
            True,
        ),
    ],
)
def test_a_field(
    emitted: Callable[..., dict[str, str]], parts: Any, section: str, name: str, value: Any
) -> None:
    config = json.loads(emitted(**parts)["ds_config.json"])
    found = {(where, key): this for where, key, this in keys(config)}
    assert found[section, name] == value
    assert type(found[section, name]) is type(value)


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"parallel": "tp = 2"}, "B340"),
        ({"parallel": "cp = 4, cp_method = ulysses, zero = 3"}, "B340"),
        ({"parallel": "cp = 2, cp_method = ring, zero = 3"}, "B505"),
        ({"parallel": "cp = 2, cp_method = ulysses, zero = 1"}, "B340"),
        (
            {"parallel": "cp = 2, cp_method = ulysses, zero = 0", "train": "precision = fp32"},
            "B340",
        ),
        ({"parallel": "cp = 2, cp_method = ulysses, pp = 2, zero = 1"}, "B340"),
        ({"parallel": "cp = 2, cp_method = ulysses, zero = 3, order = [dp, cp]"}, "B340"),
        (
            {"parallel": "cp = 2, cp_method = ulysses, zero = 3", "train": "attention = math"},
            "B340",
        ),
        ({"parallel": "zero = 3, shard = 2"}, "B340"),
        ({"parallel": "pp = 2, zero = 3"}, "B501"),
        ({"parallel": "pp = 2, zero = 1, schedule = gpipe"}, "B510"),
        ({"parallel": "zero = 3, offload = nvme(optimizer)"}, "B340"),
        ({"parallel": "zero = 2, offload = nvme(optimizer)"}, "B340"),
        ({"parallel": "pp = 2, zero = 1, offload = cpu(optimizer)"}, "B340"),
        ({"parallel": "zero = 0"}, "B340"),
        ({"parallel": "pp = 2, zero = 0", "train": "gradients = bf16"}, "B340"),
        ({"parallel": "pp = 2, zero = 1", "train": "precision = fp16"}, "B340"),
        ({"node": "laptop", "train": "precision = fp16"}, "B340"),
        ({"parallel": "zero = 1, overlap = on"}, "B344"),
        ({"parallel": "zero = 0, overlap = on", "train": "precision = fp32"}, "B344"),
        ({"model": MODEL + ", dropout = 0.1"}, "B340"),
        ({"model": MODEL + ", experts { count = 4, top_k = 2, ffn = 64 }"}, "B340"),
        ({"model": MODEL + ", softcap(attention = 50)", "parallel": ULYSSES}, "B340"),
        ({"model": MODEL + ", window(size = 32)", "parallel": ULYSSES}, "B340"),
        ({"model": MODEL + ", position = alibi", "parallel": ULYSSES}, "B340"),
        ({"model": MODEL + ", sinks = on", "parallel": ULYSSES}, "B340"),
        ({"train": "master = none"}, "B340"),
        ({"train": "precision = fp8"}, "B340"),
        ({"train": "optimizer = sgd(lr = 0.1)"}, "B340"),
        ({"train": "optimizer = adamw(lr = 1e-3, states = bf16)"}, "B340"),
        ({"train": "compile = on"}, "B340"),
        ({"train": "lora(rank = 8)"}, "B340"),
        ({"train": "recompute = selective(norm)"}, "B340"),
        ({"rest": "data { validation = 5% }"}, "B340"),
        ({"rest": 'checkpoint { path = "x", every = 5, async = on }'}, "B340"),
        ({"rest": 'target "deepspeed" { version = "0.3" }'}, "B341"),
        ({"rest": 'target "deepspeed" { options { gradient_cliping = 1 } }'}, "B342"),
        ({"rest": 'target "deepspeed" { options { mics_shard_size = 2 } }'}, "B507"),
        ({"rest": 'target "deepspeed" { options { mics_shard_size = 4 } }'}, "B342"),
        ({"rest": 'target "deepspeed" { options { timers = on } }'}, "B342"),
        ({"rest": 'target "deepspeed" { options { steps_per_print = 3 } }'}, "B343"),
        ({"rest": 'target "deepspeed" { options { lr = 1 } }'}, "B343"),
        ({"rest": 'target "deepspeed" { options { fp16_loss_scale = 3 } }'}, "B343"),
        ({"rest": 'target "deepspeed" { options { gradient_accumulation_steps = 3 } }'}, "B507"),
    ],
)
def test_what_is_refused(tmp_path: Path, parts: Any, code: str) -> None:
    path = tmp_path / "job.par"
    path.write_text(text(**parts))
    found = pipeline.check(path, ("deepspeed",)).diagnostics
    assert code in [said.code for said in found], [said.message for said in found]


@pytest.mark.slow
def test_each_key_is_one_that_deepspeed_reads(tmp_path: Path, jobs: list[pipeline.Job]) -> None:
    """DeepSpeed passes over the others of the top level in silence."""
    seen = set()
    for job in jobs:
        files = pipeline.emit(job, "deepspeed").files
        for section, name, _ in keys(json.loads(files["deepspeed/ds_config.json"])):
            assert name in sections(NEWEST)[section], (section, name)
            seen.add((section, name))
    assert len(seen) > 50


def test_names() -> None:
    assert version_of("0.19.8") == "0.19"
    assert version_of("0.3") is None
    assert place_of("stage3_prefetch_bucket_size", NEWEST) == (
        "zero_optimization",
        "stage3_prefetch_bucket_size",
    )
    assert place_of("enabled", NEWEST) is None
    assert place_of("zero_optimization", NEWEST) is None
    assert place_of("comms_logger_enabled", NEWEST) == ("comms_logger", "enabled")


PRINTED = {
    "model": "params layers hidden heads kv_heads head_dim ffn vocab context activation norm"
    " norm_placement norm_bias norm_eps embedding_norm final_norm position rope tied_embeddings"
    " rope_scaling glu_clamp glu_offset"
    " bias qk_norm sinks window softcap parallel_blocks shared_norm init_std",
    # Sequence parallelism says how tp is done, which is 1.
    "parallel": "pp cp dp schedule stages shard order overlap vocab_multiple sequence_parallel"
    " cp_method",
    # Whose software is priced changes no file.
    "train": "seq micro_batch global_batch gradients master lr_schedule clip loss steps tokens seed"
    " stack",
    "data": "path format tokenizer shuffle",
    "checkpoint": "path every keep",
    "log": "every tensorboard",
}
"""Fields that a file says, or that are refused together with another one."""


@pytest.mark.parametrize("name", PRINTED)
def test_every_field_is_emitted_or_refused(name: str) -> None:
    """A field that the language gains has to be looked at here."""
    kinds = {"model": Model, "parallel": Parallel, "train": Train}
    kinds |= {"data": Data, "checkpoint": Checkpoint, "log": Log}
    known = {path.split(".")[1] for path in EXPRESSED if path.startswith(f"{name}.")}
    fields = {schema.attribute for schema in fields_of(kinds[name])}
    assert fields == known | set(PRINTED[name].split())


# ── Names, bytes, hosts ───────────────────────────────────────────────────────


def test_no_text_of_a_user_becomes_code(emitted: Callable[..., dict[str, str]]) -> None:
    path = "/it's/$HOME/`x`"
    files = emitted(rest=f'data {{ path = "{path}", format = megatron }}')
    plain = emitted(rest='data { path = "plain", format = megatron }')
    for name, content in files.items():
        assert name == "plan.json" or path not in content
        if name.endswith(".py"):
            assert ast.dump(ast.parse(content)) == ast.dump(ast.parse(plain[name]))
    assert json.loads(files["plan.json"])["data"]["path"] == path


@pytest.mark.parametrize("name", ["$(touch x)", '"; x', "{{ 7*7 }}", "a b\\nc"])
def test_an_option_is_json_alone(emitted: Callable[..., dict[str, str]], name: str) -> None:
    written = name.replace("\\", "\\\\").replace('"', '\\"')
    option = f'flops_profiler_output_file = "{written}"'
    files = emitted(rest=f'target "deepspeed" {{ options {{ {option} }} }}')
    assert json.loads(files["ds_config.json"])["flops_profiler"]["output_file"] == name
    assert {own: text for own, text in files.items() if own != "ds_config.json"} == {
        own: text for own, text in emitted().items() if own != "ds_config.json"
    }


def test_the_same_bytes_every_time(emitted: Callable[..., dict[str, str]]) -> None:
    assert emitted() == emitted()


@pytest.mark.parametrize(("nodes", "lines"), [(1, 1), (2, 3)])
def test_hostfile(emitted: Callable[..., dict[str, str]], nodes: int, lines: int) -> None:
    """A line a node, as DeepSpeed's launcher reads them, and one on what to put there."""
    written = emitted(nodes=nodes)["hostfile"].splitlines()
    assert len(written) == lines
    assert [line.split()[1] for line in written if line[0] != "#"] == ["slots=4"] * nodes
